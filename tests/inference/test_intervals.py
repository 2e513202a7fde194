"""Intervals cover the truth, and the bootstrap agrees with them."""

import numpy as np
import pytest

from bcrl.errors import BadInput
from bcrl.inference.intervals import (
    Influence,
    block_of,
    bootstrap,
    bootstrap_error,
    interval,
    start_influence,
    start_variance,
)
from bcrl.linear import Moments, lspe, td_errors
from bcrl.linear.sandwich import cluster_scores, correct, horizon_influence, sandwich
from bcrl_bench.worlds import linear_inputs, lqr, random_tabular


def problem(world, episodes, length=20, seed=0):
    return linear_inputs(world, world.episodes(episodes, length, np.random.default_rng(seed)))


def blocks_of(data):
    block = block_of(len(data.starts))
    assert len(np.unique(block)) == 32
    return [Moments.from_features(*(a[block[data.episode] == k] for a in data.arrays)) for k in range(32)]


def weights_and_influence(world, data, horizon=None):
    """theta, and each episode's part of the error of x0^T theta, start states held fixed."""
    moments = Moments.from_features(*data.arrays)
    x0, episodes = data.starts.mean(axis=0), len(data.starts)
    solution = lspe(moments, world.discount, horizon=horizon)
    if horizon is None:
        theta = solution.lstd
        q, next_v = data.phi @ theta, data.next_phi @ theta
        delta = td_errors(data.rewards, data.terminated, q, next_v, world.discount)
        scores = cluster_scores(data.phi, delta, data.episode, episodes)
        return theta, sandwich(solution, scores, moments.count) @ x0
    parts = horizon_influence(solution, x0, moments.count).per_transition(*data.arrays)
    psi = np.bincount(data.episode, weights=parts, minlength=episodes)
    return solution.theta, correct(psi, count=moments.count, dim=moments.dim)


@pytest.mark.parametrize("horizon", [None, 15])
@pytest.mark.parametrize("make", [random_tabular, lqr])
def test_bootstrap_agrees_with_the_influence(make, horizon):
    world = make()
    data = problem(world, 640, seed=3)
    theta, psi = weights_and_influence(world, data, horizon)
    blocks, x0 = blocks_of(data), data.starts.mean(axis=0)
    one, two = (
        bootstrap(blocks, world.discount, np.random.default_rng(0), horizon=horizon) for _ in range(2)
    )
    assert bootstrap_error(one, x0, len(blocks)) == pytest.approx(np.linalg.norm(psi), rel=0.35)
    assert np.quantile(one @ x0, 0.01) < x0 @ theta < np.quantile(one @ x0, 0.99)
    np.testing.assert_array_equal(one, two)


def test_the_bootstrap_refuses_one_block():
    with pytest.raises(BadInput, match="at least 2 blocks"):
        bootstrap([Moments.zeros(2)], 0.9, np.random.default_rng(0))


def test_independent_starts_add_their_own_variance():
    values = np.random.default_rng(1).normal(size=50)
    assert start_variance(values) == pytest.approx(values.var(ddof=1) / 50)
    assert start_variance(values[:1]) == 0.0
    psi = Influence(np.array([0.3, -0.3, 0.1, -0.1]))
    assert interval(0.0, psi, independent_variance=0.25)[0] == pytest.approx(np.sqrt(0.2 + 0.25))


# Shares of intervals that held the truth, seeds 0-199; printed with -s, kept in results/verdict_history.md.
@pytest.mark.slow
@pytest.mark.parametrize("episodes", [30, 100, 400])
@pytest.mark.parametrize(
    ("name", "make", "horizon"), [("tabular", random_tabular, None), ("lqr", lqr, None), ("lqr", lqr, 15)]
)
def test_coverage_of_the_95_percent_interval(name, make, horizon, episodes):
    world = make()
    truth = world.value if horizon is None else world.horizon_value(horizon, world.discount)
    inside = 0
    for seed in range(200):
        data = problem(world, episodes, length=40, seed=seed)
        theta, psi = weights_and_influence(world, data, horizon)
        values = data.starts @ theta
        influence = Influence(psi + start_influence(values, np.arange(episodes), episodes))
        inside += truth in interval(float(values.mean()), influence)[1]
    print(f"coverage {name} horizon={horizon} episodes={episodes}: {inside / 2:.1f} %")
    assert 0.90 <= inside / 200 <= 0.98
