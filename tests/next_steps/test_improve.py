"""Improvement: better than the log, or the log."""

import math
from dataclasses import replace

import numpy as np
import pytest

import bcrl
from bcrl.comparison import Difference
from bcrl.estimate import Budget, Entry, Estimate, Interval
from bcrl.estimators.lspe.method import LSPE
from bcrl.next_steps.improve import at_least, improve
from bcrl.representations.fixed import RandomFeatures

CHEAP = LSPE(RandomFeatures(dim=60, widths=(1.0,)))


def steps_log(episodes=400, seed=0):
    """Two actions by lot, ten steps; action 1 pays 1 where the state is above 0, action 0 elsewhere."""
    rng = np.random.default_rng(seed)
    kept = []
    for _ in range(episodes):
        x = rng.uniform(-1.0, 1.0, size=(11, 1))
        a = rng.integers(0, 2, 10)
        kept.append(
            {
                "observations": x,
                "actions": a,
                "rewards": (a == (x[:-1, 0] > 0)).astype(float) + 0.1 * rng.normal(size=10),
                "terminated": np.zeros(10, bool),
                "truncated": np.arange(10) == 9,
            }
        )
    return bcrl.Dataset.from_episodes(kept, num_actions=2)


def always(action):
    return lambda x: np.full(len(x), action)


def test_of_two_halves_a_better_whole_is_made():
    found = improve(
        steps_log(),
        {"right": lambda x: (x[:, 0] > 0).astype(int), "zero": always(0)},
        discount=0.9,
        horizon=5,
        method=CHEAP,
    )
    assert found.improved
    assert found.used["right"] > 0.8
    assert found.difference.honest.low <= found.at_least < found.difference.lower_bound
    assert found.difference.value == pytest.approx(0.5 * (1 - 0.9**5) / 0.1, rel=0.2)
    x = np.linspace(-0.9, 0.9, 20, dtype=np.float32)[:, None]
    assert (found.policy.probabilities(x).argmax(axis=1) == (x[:, 0] > 0)).mean() >= 0.9


def test_chance_counts_once_in_the_pair_and_the_rest_in_full():
    entries = (Entry("sampling", 3.0, "", ""), Entry("floor", 0.5, "", ""))
    answer = Estimate(
        value=9.0, method="m", discount=0.9, budget=Budget(entries, Interval(5.5, 12.5), 10.0, 1.0)
    )
    base = Estimate(value=5.0, method="logged", discount=0.9)
    pair = Difference(4.0, lower_bound=3.0, decision="cannot tell", honest=Interval(-1.0, 9.0))
    assert at_least(pair, answer, base) == 2.5  # decided: 0.5 is not chance, and the pair shares its luck
    assert at_least(replace(pair, honest=Interval(2.8, 5.2)), answer, base) == 2.8
    assert at_least(replace(pair, honest=None), answer, base) == -math.inf


def test_where_no_candidate_is_better_the_logged_policy_comes_back():
    found = improve(
        steps_log(), {"wrong": lambda x: (x[:, 0] <= 0).astype(int)}, discount=0.9, horizon=5, method=CHEAP
    )
    assert not found.improved
    assert found.at_least < 0.0
    assert "logged policy is returned" in found.sentence
    x = np.linspace(-0.9, 0.9, 20, dtype=np.float32)[:, None]
    np.testing.assert_allclose(found.policy.probabilities(x), 0.5, atol=0.25)  # the log decides by lot


def test_what_the_views_disagree_about_counts_once_where_they_valued_both():
    entries = (
        Entry("other views", 2.0, "", ""),
        Entry("Bellman error", 1.0, "", ""),
        Entry("floor", 0.5, "", ""),
    )

    def valued(value, views):
        stats = {f"evidence/view {name}": seen for name, seen in views.items()}
        budget = Budget(entries, Interval(value - 3.5, value + 3.5), 10.0, 1.0)
        return Estimate(value=value, method="m", discount=0.9, budget=budget, stats=stats)

    answer = valued(9.0, {"a": 12.0, "b": 7.0, "c": 9.5})
    base = valued(5.0, {"a": 8.1, "b": 2.8, "c": 5.7})  # a is off by 3 for both, b by 2 the other way
    pair = Difference(4.0, lower_bound=3.0, decision="cannot tell", honest=Interval(-9.0, 17.0))
    # the views' differences are 3.9, 4.2 and 3.8: twice 0.2, and both floors
    assert at_least(pair, answer, base) == pytest.approx(3.0 - 0.4 - 1.0)
    alone = replace(base, stats={})
    assert at_least(pair, answer, alone) == pytest.approx(3.0 - 3.5 - 3.5)


def test_many_draws_are_as_many_single_ones():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 21, 1))
    u = 0.5 * x[:, :-1] + 0.1 * rng.normal(size=(60, 20, 1))
    kept = [
        {
            "observations": x[i],
            "actions": u[i],
            "rewards": -np.abs(u[i, :, 0] - x[i, :-1, 0]),  # the nearer u is to x, the better
            "terminated": np.zeros(20, bool),
            "truncated": np.arange(20) == 19,
        }
        for i in range(60)
    ]
    found = improve(bcrl.Dataset.from_episodes(kept), {"near": lambda s: 0.6 * s}, discount=0.9, horizon=10)
    assert found.improved
    seen = np.linspace(-1.0, 1.0, 9, dtype=np.float32)[:, None]
    many = found.policy.sample_many(seen, np.random.default_rng(1), 200)
    single = np.stack([found.policy.sample(seen, np.random.default_rng(i)) for i in range(200)], axis=1)
    assert many.shape == (9, 200, 1)
    np.testing.assert_allclose(many.mean(axis=1), single.mean(axis=1), atol=0.05)
    np.testing.assert_allclose(many.mean(axis=1), 0.6 * seen, atol=0.08)
