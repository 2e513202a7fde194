"""Influence functions are derivatives of LSPE's answer by the weight of an episode."""

import numpy as np
import pytest
from scipy import stats

from bcrl.errors import BadInput
from bcrl.linear import Moments, lspe, td_errors
from bcrl.linear.sandwich import cluster_scores, correct, covariance_root, horizon_influence, sandwich
from bcrl_bench.worlds import linear_inputs, lqr, random_tabular


def by_episode(data, episode):
    rows = data.episode == episode
    return Moments.from_features(*(a[rows] for a in data.arrays))


def reweighted(data, episode, weight, **options):
    """LSPE with one episode counted `weight` times more."""
    extra, full = by_episode(data, episode), Moments.from_features(*data.arrays)
    scaled = Moments(
        **{name: getattr(full, name) + weight * getattr(extra, name) for name in full.__dataclass_fields__}
    )
    return lspe(scaled, ridge=0.0, **options)


def problem(world, episodes=60, length=20, seed=0):
    return linear_inputs(world, world.episodes(episodes, length, np.random.default_rng(seed)))


def deltas(data, theta, discount):
    return td_errors(data.rewards, data.terminated, data.phi @ theta, data.next_phi @ theta, discount)


def theta_errors(data, solution):
    """Each episode's part of the error of LSTD's weights."""
    delta = deltas(data, solution.lstd, solution.discount)
    scores = cluster_scores(data.phi, delta, data.episode, len(data.starts))
    return sandwich(solution, scores, len(delta))


def test_influence_of_an_episode_is_the_derivative_by_its_weight():
    world = lqr(target_std=0.3)
    data = problem(world)
    moments = Moments.from_features(*data.arrays)
    rows = theta_errors(data, lspe(moments, world.discount, ridge=0.0))
    plain = correct(np.ones(len(rows)), count=moments.count, dim=moments.dim)[0]
    for episode in (0, 7, 31):
        up, down = (reweighted(data, episode, w, discount=world.discount).lstd for w in (1e-4, -1e-4))
        np.testing.assert_allclose(rows[episode] / plain, (up - down) / 2e-4, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("discount", [0.9, 1.0])
def test_influence_on_a_finite_horizon_is_the_derivative_by_the_weight(discount):
    world = random_tabular(num_states=4, num_actions=2)
    data = problem(world, episodes=100)
    moments = Moments.from_features(*data.arrays)
    x0 = data.starts.mean(axis=0)
    options = {"discount": discount, "horizon": 12}
    influence = horizon_influence(lspe(moments, ridge=0.0, **options), x0, moments.count)
    psi = np.bincount(data.episode, weights=influence.per_transition(*data.arrays))
    assert abs(psi.sum()) < 1e-8
    for episode in (0, 5, 42):
        up, down = (x0 @ reweighted(data, episode, w, **options).theta for w in (1e-4, -1e-4))
        assert psi[episode] == pytest.approx((up - down) / 2e-4, rel=1e-4, abs=1e-8)


def test_long_horizon_tends_to_the_fixed_point():
    world = lqr()
    data = problem(world)
    moments = Moments.from_features(*data.arrays)
    x0 = data.starts.mean(axis=0)
    solution = lspe(moments, world.discount, horizon=400)
    long = horizon_influence(solution, x0, moments.count)
    psi = np.bincount(data.episode, weights=long.per_transition(*data.arrays))
    np.testing.assert_allclose(
        correct(psi, count=moments.count, dim=moments.dim),
        theta_errors(data, solution) @ x0,
        rtol=1e-5,
        atol=1e-7,
    )


def test_scores_of_parts_add_up_and_respect_the_mask():
    data = problem(random_tabular())
    theta = np.random.default_rng(0).normal(size=data.phi.shape[1])
    delta = data.rewards + 0.9 * (data.next_phi * ~data.terminated[:, None]) @ theta - data.phi @ theta
    np.testing.assert_allclose(deltas(data, theta, 0.9), delta)
    expected = np.zeros((len(data.starts), len(theta)))
    np.add.at(expected, data.episode, data.phi * delta[:, None])
    parts = np.array_split(np.arange(len(delta)), 7)
    scores = [cluster_scores(data.phi[p], delta[p], data.episode[p], len(expected)) for p in parts]
    np.testing.assert_allclose(sum(scores), expected)


@pytest.mark.parametrize("episodes", [3, 60])
def test_the_root_has_the_covariance_of_the_weights(episodes):
    world = lqr()
    data = problem(world, episodes=episodes)
    rows = theta_errors(data, lspe(Moments.from_features(*data.arrays), world.discount))
    root = covariance_root(rows)
    assert root.shape[1] == min(rows.shape)
    np.testing.assert_allclose(root @ root.T, rows.T @ rows, atol=1e-8 * np.abs(rows.T @ rows).max())
    near, far = data.starts[:5], world.policy_features(np.array([[40.0, 40.0]]))
    assert np.linalg.norm(far @ root) > 20 * np.linalg.norm(near @ root, axis=1).max()


def test_the_error_of_a_mean_is_students():
    """One feature, discount 0, one transition per cluster: the estimate is a mean."""
    rewards = np.random.default_rng(0).normal(size=40)
    ones = np.ones((40, 1))
    solution = lspe(
        Moments.from_features(ones, ones, rewards, np.ones(40, dtype=bool)), discount=0.0, ridge=0.0
    )
    scores = cluster_scores(ones, rewards - solution.lstd[0], np.arange(40), 40)
    plain = sandwich(solution, scores, 40)[:, 0] * (1 - 1 / 40)
    assert float(solution.lstd[0]) == pytest.approx(rewards.mean())
    assert np.sqrt(plain @ plain) == pytest.approx(stats.sem(rewards))


def test_one_cluster_has_no_error():
    with pytest.raises(BadInput, match="at least 2"):
        correct(np.ones(1), count=10, dim=2)


def test_td_errors_read_no_value_after_the_end():
    rewards, terminated = np.array([1.0, 2.0]), np.array([False, True])
    found = td_errors(rewards, terminated, np.array([0.5, 0.5]), np.array([10.0, np.nan]), 0.9)
    np.testing.assert_array_equal(found, [1.0 + 0.9 * 10.0 - 0.5, 1.5])
