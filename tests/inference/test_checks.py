"""Every check passes a good case and catches a bad one, in a sentence without odd numbers."""

import dataclasses
import math

import numpy as np
import pytest

from bcrl.estimate import Status
from bcrl.estimators.lspe.method import LSPE
from bcrl.inference import checks
from bcrl.inference.evidence import action_support, predictable_error
from bcrl.inference.inputs import states_of
from bcrl.policies.policy import target_actions
from bcrl.representations.fixed import GivenFeatures, RandomFeatures
from bcrl_bench.asking import ask
from bcrl_bench.worlds import lqr, pixel_lqr, rich_lqr

CASES = [
    (checks.contraction(0.9, 0.9), checks.contraction(0.97, 0.9), checks.contraction(1.2, 0.9)),
    (
        checks.convergence(Status.CONVERGED, 9),
        checks.convergence(Status.LIMIT, 9),
        checks.convergence(Status.DIVERGED, 9),
    ),
    (
        checks.bellman_error(0.1, 10.0, 50.0),
        checks.bellman_error(5.0, 10.0, 50.0),
        checks.bellman_error(40.0, 10.0, 50.0),
    ),
    (
        checks.bellman_error(0.0, 10.0, 10.0),
        checks.bellman_error(0.0, 10.0, 4.0),
        checks.bellman_error(40.0, 10.0, 4.0),
    ),
    (checks.action_support(0.95), checks.action_support(0.75), checks.action_support(0.2)),
    (checks.effective_share(0.5, 50), checks.effective_share(0.01, 20), checks.effective_share(0.01, 2)),
    (checks.self_check(0.1, 0.1, 10.0), checks.self_check(3.0, 0.1, 10.0), checks.self_check(9.0, 0.1, 10.0)),
    (checks.precision(0.1, 10.0), checks.precision(2.0, 10.0), checks.precision(9.0, 10.0)),
    (checks.enough_units(100), checks.enough_units(8), checks.enough_units(2)),
    (checks.bootstrap_agrees(1.1), checks.bootstrap_agrees(4.0), None),
    (checks.stable_training(0.01), checks.stable_training(0.1), checks.stable_training(0.9)),
]


@pytest.mark.parametrize("row", CASES, ids=lambda row: row[0].name)
def test_good_middling_and_bad(row):
    assert [check.verdict for check in row if check is not None] == ["trust", "caution", "distrust"][
        : 2 + (row[2] is not None)
    ]


@pytest.mark.parametrize("row", CASES, ids=lambda row: row[0].name)
def test_sentences_are_for_people(row):
    for check in row:
        if check is not None:
            assert check.meaning.endswith(".")
            assert "inf" not in check.meaning.split() and "nan" not in check.meaning


def test_noise_in_the_reward_is_no_reason_to_doubt_but_blindness_is():
    assert checks.reward_fit(0.01, 0.0).verdict == "trust"
    assert checks.reward_fit(0.6, 0.0).verdict == "trust"
    assert checks.reward_fit(0.6, 0.4).verdict == "distrust"
    assert checks.reward_fit(math.nan, 0.4).verdict == "trust"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_a_number_is_never_trusted(value):
    for check in (
        checks.contraction(value, 0.9),
        checks.bellman_error(value, 1.0, 50.0),
        checks.stable_training(value),
    ):
        assert check.verdict == "distrust"
    assert checks.precision(None, 1.0).verdict == "caution"


def test_action_support_tells_a_covered_policy_from_a_foreign_one():
    world = lqr()
    dataset = world.dataset(200, 40, 0)
    states = dataset.observations["observation"]

    class Foreign:
        reads = None

        def act(self, observations):
            return np.full((len(observations), dataset.actions.shape[1]), 50.0)

    uniform = np.ones(len(dataset))
    near = action_support(states, dataset, target_actions(dataset, world.target), uniform, seed=0)
    far = action_support(states, dataset, target_actions(dataset, Foreign()), uniform, seed=0)
    assert near > 0.9
    assert far < 0.01


def test_noise_of_the_weights_is_no_visit():
    """A policy that is foreign where it never goes: the weights' noise there must not count."""
    world = lqr()
    dataset = world.dataset(400, 40, 0)
    states = dataset.observations["observation"]
    right = states[dataset.rows][:, 0] > 0.0

    class HalfForeign:
        reads = None

        def act(self, observations):
            return np.where(observations[:, :1] > 0.0, world.target.act(observations), 50.0)

    noise = np.random.default_rng(0).standard_normal(len(dataset))
    chosen = target_actions(dataset, HalfForeign())
    assert action_support(states, dataset, chosen, right + noise, seed=0) > 0.9
    assert action_support(states, dataset, chosen, ~right + noise, seed=0) < 0.1


def test_the_audit_finds_bellman_error_and_nothing_else():
    """Noise that nobody can predict is no Bellman error; a bias that depends on the state is."""
    world = lqr()
    dataset = world.dataset(300, 40, 0)
    rng = np.random.default_rng(0)
    inputs = np.concatenate([dataset.observations["observation"][dataset.rows], dataset.actions], axis=1)
    noise = rng.standard_normal(len(dataset))
    assert predictable_error(inputs, noise, dataset, seed=0).error < 0.1
    assert predictable_error(inputs, noise, dataset, seed=0).rows == 6000 / inputs.shape[1]
    bias = 0.5 * np.sign(inputs[:, 0])
    assert predictable_error(inputs, noise + bias, dataset, seed=0).error == pytest.approx(0.5, abs=0.1)


def test_features_that_miss_the_state_are_not_trusted():
    """Random features of 100 dimensions, half distractors, are off by more than half: the verdict says so."""
    world = rich_lqr()
    dataset = world.dataset(200, 50, 0)
    good, bad = (
        ask(LSPE(representation), dataset, {"target": world.target}, discount=world.discount)["target"]
        for representation in (GivenFeatures(world.features), RandomFeatures(dim=200))
    )
    assert abs(good.value / world.value - 1) < 0.1 and good.verdict == "trust"
    assert abs(bad.value / world.value - 1) > 0.3 and bad.verdict != "trust"


def test_audits_take_the_logs_own_numbers_before_a_code_learned_from_frames():
    both = pixel_lqr().dataset(3, 4, 0)
    frames = dataclasses.replace(
        both, observations={key: both.observations[key] for key in both.pixel_keys}, single=False
    )
    vectors = lqr().dataset(3, 4, 0)
    for dataset in (both, frames, vectors):
        code = np.random.default_rng(0).normal(size=(len(dataset) + dataset.num_episodes, 5))
        found = states_of(dataset, code)
        own = dataset.observations["state"] if dataset is both else code
        np.testing.assert_array_equal(found, own)
