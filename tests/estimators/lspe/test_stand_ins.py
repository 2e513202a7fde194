"""Where the plain iteration blows up on a log that covers the policy, something else answers and says so."""

import numpy as np
import pytest

from bcrl.estimate import Status
from bcrl.estimators.lspe.method import LSPE
from bcrl.representations.fixed import GivenFeatures, RandomFeatures
from bcrl_bench.asking import ask_one
from bcrl_bench.worlds import bandit, chain, counterexample, lqr, oscillators, random_tabular

UNDAMPED = oscillators()


def contraction(estimate):
    return next(check for check in estimate.checks if check.name == "contraction")


@pytest.mark.parametrize("episodes", [10, 50])
def test_an_undamped_world_has_a_value(episodes):
    data = UNDAMPED.dataset(episodes, 100, seed=0)
    features = RandomFeatures(dim=200)
    plain = ask_one(LSPE(features, fallback=None), data, UNDAMPED.target, 0.99)
    assert plain.status is Status.DIVERGED and np.isnan(plain.value)
    assert np.abs(plain.curves["lspe"]).max() > 100.0 * abs(UNDAMPED.value) or episodes == 10
    estimate = ask_one(LSPE(features), data, UNDAMPED.target, 0.99)
    assert estimate.value == pytest.approx(UNDAMPED.value, rel=0.2)
    assert estimate.interval is not None and estimate.status is not Status.DIVERGED
    assert estimate.stats["fallback"] > 0 and contraction(estimate).verdict != "trust"
    assert "does not contract" in contraction(estimate).meaning
    assert estimate.curves["lspe_plain"] == plain.curves["lspe"]
    assert estimate.curves["lspe"][-1] == pytest.approx(estimate.value, rel=1e-9)


def test_the_counterexample_has_its_fixed_point():
    """Q lies in the span of its one feature, so LSTD is exact although the iteration doubles."""
    world = counterexample()
    data = world.dataset(200, 50, seed=0)
    estimate = ask_one(LSPE(GivenFeatures(world.features)), data, world.target, world.discount)
    assert estimate.value == pytest.approx(world.value, rel=1e-6)
    assert estimate.stats["fallback"] == 1 and "fixed point" in contraction(estimate).meaning
    assert estimate.stats["spectral_radius"] > 1.0
    assert estimate.verdict != "trust"


@pytest.mark.parametrize("make", [lqr, random_tabular, chain, bandit], ids=lambda f: f.__name__)
def test_nothing_changes_where_the_iteration_contracts(make):
    world = make()
    data = world.dataset(200, 30, seed=1)
    both = [
        ask_one(LSPE(GivenFeatures(world.features), fallback=fallback), data, world.target, world.discount)
        for fallback in ("auto", None)
    ]
    assert both[0].to_json() == both[1].to_json().replace(", fallback=None", "")
    assert both[0].stats["fallback"] == 0


def test_a_horizon_that_ends_in_an_absurd_value_is_caught_too():
    world = counterexample()
    data = world.dataset(100, 60, seed=0)
    plain, estimate = (
        ask_one(LSPE(GivenFeatures(world.features), fallback=one), data, world.target, 0.95, horizon=50)
        for one in (None, "auto")
    )
    most = float(np.abs(data.rewards).max()) * (1 - 0.95**50) / 0.05
    assert abs(plain.value) > 10 * most and abs(estimate.value) < 1.2 * most
    assert estimate.stats["fallback"] >= 2 and estimate.verdict != "trust"
