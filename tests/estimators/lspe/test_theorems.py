"""Rollouts of the policy make kappa(p0), the density ratio and the theorems' bounds reachable (F26)."""

import json
import math

import numpy as np
import pytest

import bcrl
from bcrl.cli import main
from bcrl.data.storage.folder import save
from bcrl.errors import BadInput
from bcrl.estimate import Estimate
from bcrl.estimators.lspe.theorems import theory_of
from bcrl.linear import Moments, bellman_residual, epsilon_nu, lspe_bound
from bcrl.policies.actor_file import save_actor
from bcrl.policies.actors import StateActor
from bcrl.question import Question
from bcrl.report.page import render
from bcrl_bench.worlds import lqr, random_tabular


@pytest.fixture(scope="module")
def world():
    return random_tabular(seed=1)


@pytest.fixture(scope="module")
def rollouts(world):
    return world.dataset(1500, 60, 3, policy=world.target)


@pytest.fixture(scope="module")
def estimate(world, rollouts):
    return bcrl.evaluate(
        world.dataset(1500, 30, 0),
        world.target,
        discount=world.discount,
        method=bcrl.LSPE(bcrl.GivenFeatures(world.features), solver="ball", radius=20.0),
        rollouts=rollouts,
    )


def test_kappa_and_the_density_ratio_are_those_of_the_exact_occupancy(world, estimate):
    """With one indicator per (s, a) kappa is the density ratio; what ends early is missing from both."""
    nu = world.dataset(1500, 30, 0)
    phi = world.features(nu.observations["observation"][nu.rows], nu.actions)
    ratio = (world.occupancy().reshape(-1) / phi.mean(axis=0)).max()
    assert estimate.theory.kappa == pytest.approx(ratio, rel=0.1)
    assert estimate.theory.density_ratio == pytest.approx(estimate.theory.kappa, rel=0.01)


def test_the_bounds_are_the_theorems(world, estimate):
    first, second, third = estimate.theory.theorems
    rewards = float(np.abs(world.dataset(1500, 30, 0).rewards).max())
    by_hand = lspe_bound(
        discount=world.discount,
        iterations=int(estimate.stats["iterations"]),
        dim=world.feature_table.shape[-1],
        count=len(world.dataset(1500, 30, 0)),
        radius=20.0,
        epsilon=estimate.stats["eps_nu_high"],
        kappa=estimate.theory.kappa,
        density_ratio=estimate.theory.density_ratio,
        reward_bound=max(rewards, first.largest * (1.0 - world.discount)),
    )
    assert first.terms == pytest.approx(by_hand.terms) and first.vacuous
    assert set(second.terms) == {"features", "predictors"} and third.vacuous and third.terms["sampling"] > 0.0
    # The value does not use the rollouts.
    alone = bcrl.evaluate(
        world.dataset(1500, 30, 0),
        world.target,
        discount=world.discount,
        method=bcrl.LSPE(bcrl.GivenFeatures(world.features), solver="ball", radius=20.0),
    )
    assert alone.value == estimate.value and alone.theory is None


@pytest.mark.parametrize(("radius", "exact"), [(2.0, False), (4.0, True)])
def test_an_estimate_says_both_ends_of_eps_nu_and_for_which_ball(world, radius, exact):
    """F20: one number for W = ||theta||, and nothing said that it was the lower end."""
    log = world.dataset(400, 20, 0)
    mixed = 0.3 * np.random.default_rng(0).normal(size=(world.feature_table.shape[-1], 2))

    def features(observations, actions):
        return world.features(observations, actions) @ mixed

    method = bcrl.LSPE(bcrl.GivenFeatures(features), solver="ball", radius=radius)
    stats = bcrl.evaluate(log, world.target, discount=world.discount, method=method).stats
    states = log.observations["observation"]
    residual = bellman_residual(
        Moments.from_features(
            features(states[log.rows], log.actions),
            world.policy_features(states[log.rows + 1]) @ mixed,
            log.rewards,
            log.terminated,
        ),
        world.discount,
    )
    wanted = epsilon_nu(residual, radius)
    assert stats["eps_nu_radius"] == radius
    assert (stats["eps_nu_low"], stats["eps_nu_high"]) == pytest.approx(
        (wanted.lower, wanted.upper), rel=1e-6
    )
    assert wanted.exact is exact and (wanted.upper > 1.003 * wanted.lower) is not exact


def test_what_the_log_lacks_makes_the_ratio_infinite(world, rollouts, estimate):
    asked = {"discount": world.discount, "method": bcrl.LSPE(bcrl.GivenFeatures(world.features))}
    few = bcrl.evaluate(world.dataset(10, 4, 0), world.target, rollouts=rollouts, **asked)
    assert few.theory.density_ratio == math.inf and few.theory.theorems[0].vacuous
    again = Estimate.from_json(few.to_json())
    assert again.theory == few.theory and again.theory.lines == few.theory.lines


def test_the_page_and_the_json_say_it(estimate):
    page = render(bcrl.Comparison.of(estimate))
    assert "Theorem 1 (LSPE)" in page and "vacuous" in page and "kappa(p0)" in page
    assert json.loads(estimate.to_json())["theory"]["rollouts"] == 1500


def test_what_has_no_theory_is_refused(world, rollouts):
    log = world.dataset(30, 10, 0)
    asked = {"discount": world.discount, "rollouts": rollouts}
    with pytest.raises(BadInput, match="goes with LSPE"):
        bcrl.evaluate(log, world.target, method="is", **asked)
    with pytest.raises(BadInput, match="whole future"):
        bcrl.evaluate(log, world.target, method=bcrl.LSPE(bcrl.RandomFeatures(dim=5)), horizon=5, **asked)


def test_from_the_command_line(tmp_path, capsys):
    continuous = lqr()
    save(continuous.dataset(20, 10, 0), tmp_path / "log")
    save(continuous.dataset(20, 10, 1, policy=continuous.target), tmp_path / "own")
    save_actor(tmp_path / "new.safetensors", StateActor(2, 1, (8,)), {})
    words = ["evaluate", str(tmp_path / "log"), str(tmp_path / "new.safetensors"), "--discount", "0.9"]
    asked = [*words, "--method", "LSPE(RandomFeatures(dim=5))", "--rollouts", str(tmp_path / "own")]
    assert main(asked) == 0
    told = capsys.readouterr().out
    assert "kappa(p0)" in told and "Theorem 3 (end to end)" in told and "unknown (no table)" in told


def test_rollouts_need_the_same_sensors(world, estimate):
    target = Question.of(world.dataset(30, 10, 0), {"t": world.target}, discount=0.9).targets["t"]
    other = bcrl.Dataset.from_arrays(
        observations=np.zeros((4, 7)),
        actions=np.zeros((4, 1)),
        rewards=np.zeros(4),
        terminated=np.ones(4, bool),
    )
    with pytest.raises(BadInput, match="same sensors"):
        theory_of(estimate, target, other)
