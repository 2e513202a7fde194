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
