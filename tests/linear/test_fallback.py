"""Stand-ins for an iteration that blows up, on moments alone."""

import numpy as np
import pytest

from bcrl.estimate import Status
from bcrl.linear import Moments, lspe
from bcrl.linear.fallback import Evidence, Range, fall_back
from bcrl_bench.worlds import counterexample, linear_inputs, random_tabular

WIDE = Range(-1e6, 1e6)


def problem(world, seed=0):
    data = linear_inputs(world, world.episodes(200, 30, np.random.default_rng(seed)))
    halves = [
        Moments.from_features(*(array[data.episode % 2 == side] for array in data.arrays)) for side in (0, 1)
    ]
    return data, halves[0] + halves[1], tuple(halves)


def evidence(data, moments, halves, allowed=WIDE, free=None):
    probes = np.concatenate([data.phi, data.next_phi])
    return Evidence(moments, halves, data.starts.mean(axis=0), probes, allowed, free)


def test_what_rewards_allow():
    rewards = np.array([-1.0, 3.0])
    found = Range.of(rewards, ends=False, discount=0.9, horizon=None)
    assert (found.low, found.high) == pytest.approx((-10.0, 30.0))
    assert Range.of(rewards + 2, ends=True, discount=0.5, horizon=None).low == 0.0
    assert Range.of(rewards, ends=False, discount=1.0, horizon=7).high == pytest.approx(21.0)
    assert Range.of(rewards, ends=False, discount=0.5, horizon=2).high == pytest.approx(4.5)
    assert found.outside(np.array([-11.0, 35.0, 0.0, np.nan])) == pytest.approx(0.5)


def test_the_fixed_point_answers_where_it_is_plausible_and_the_ridge_where_it_is_not():
    world = counterexample()
    data, moments, halves = problem(world)
    plain = lspe(moments, world.discount, start_features=data.starts.mean(axis=0))
    assert plain.blows_up
    solution, which = fall_back(plain, evidence(data, moments, halves))
    assert which.kind == "lstd" and which.first is plain
    assert world.start_features() @ solution.theta == pytest.approx(world.value, rel=1e-6)
    small = Range(-0.05, 0.05)  # as if rewards allowed far less than the fixed point says
    solution, which = fall_back(plain, evidence(data, moments, halves, small))
    assert which.kind == "ridge" and solution.status is Status.CONVERGED
    assert abs(world.start_features() @ solution.theta) < 0.06


def test_halves_that_disagree_are_not_believed():
    world = counterexample()
    data, moments, halves = problem(world)
    plain = lspe(moments, world.discount, start_features=data.starts.mean(axis=0))
    wild = Moments.from_features(*(array[:40] for array in (data.phi, 3.0 * data.next_phi, *data.arrays[2:])))
    _, which = fall_back(plain, evidence(data, moments, (halves[0], wild)))
    assert which.kind != "lstd"


def test_a_contracting_iteration_needs_nobody():
    world = random_tabular()
    _, moments, _ = problem(world)
    assert not lspe(moments, world.discount).blows_up
    assert not lspe(moments, 0.9, horizon=5).blows_up


def test_a_ridge_leaves_the_constant_alone():
    """With nothing but the constant left, the value is the mean reward for ever, not 0."""
    rng = np.random.default_rng(0)
    phi = np.concatenate([rng.normal(size=(400, 5)), np.ones((400, 1))], axis=1)
    following = np.concatenate([rng.normal(size=(400, 5)), np.ones((400, 1))], axis=1)
    moments = Moments.from_features(phi, following, 2.0 + phi[:, 0], np.zeros(400, dtype=bool))
    x0 = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    held, free = (lspe(moments, 0.9, ridge=1e6, free=one) for one in (None, 5))
    assert x0 @ held.theta == pytest.approx(0.0, abs=0.01)
    assert x0 @ free.theta == pytest.approx(moments.mean.reward / 0.1, rel=1e-3)
