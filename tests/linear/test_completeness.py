"""Completeness and coverage against brute force: moments, eps_nu by search, kappa by its definition."""

import numpy as np
import pytest

from bcrl.errors import BadInput
from bcrl.linear import (
    Moments,
    bellman_residual,
    epsilon_nu,
    kappa,
    leverage,
    next_noise,
    next_pairs,
    occupancy_moment,
    spectrum,
    whiten,
)
from bcrl.linear.epsilon import maximise_in_ball
from bcrl_bench.worlds import counterexample, linear_inputs, low_rank, lqr, random_tabular, transitions


def data_of(world, episodes=400, length=25, seed=0):
    data = linear_inputs(world, world.episodes(episodes, length, np.random.default_rng(seed)))
    return data, Moments.from_features(*data.arrays)


def random_data(seed=0, n=400, d=5):
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(n, d))
    next_phi = phi @ rng.normal(size=(d, d)) * 0.3 + 0.3 * rng.normal(size=(n, d))
    return phi, next_phi, phi[:, 0] + 0.5 * rng.normal(size=n), rng.random(n) < 0.1


def test_spectrum_against_plain_linear_algebra():
    world = lqr()
    data, moments = data_of(world)
    ours = spectrum(moments, world.discount, ridge=0.0)
    mean = moments.mean
    a = world.discount * np.linalg.solve(mean.sigma, mean.c)
    assert ours.spectral_radius == pytest.approx(np.abs(np.linalg.eigvals(a)).max(), rel=1e-6)
    directions = np.random.default_rng(0).normal(size=(len(a), 20_000))
    size = np.sqrt(np.einsum("dk,de,ek->k", directions, mean.sigma, directions))
    moved = np.sqrt(np.einsum("dk,de,ek->k", a @ directions, mean.sigma, a @ directions))
    assert (moved / size).max() <= ours.operator_norm * (1 + 1e-9)
    assert ours.spectral_radius <= ours.operator_norm * (1 + 1e-9)
    assert ours.operator_norm <= ours.operator_norm_bound * (1 + 1e-9)
    np.testing.assert_allclose(
        ours.singular_values, np.linalg.svd(data.phi, compute_uv=False) ** 2 / len(data.phi), rtol=1e-6
    )
    assert ours.condition_number == pytest.approx(np.linalg.cond(mean.sigma), rel=1e-6)
    assert ours.lambda_min == pytest.approx(ours.singular_values[-1])


def test_blow_up_needs_the_bound_above_one():
    world = counterexample()
    _, moments = data_of(world)
    ours = spectrum(moments, world.discount)
    assert ours.spectral_radius > 1.0 and ours.operator_norm_bound > 1.0


def test_residual_moments_are_those_of_the_regression_residuals():
    phi, next_phi, rewards, terminated = random_data()
    moments = Moments.from_features(phi, next_phi, rewards, terminated)
    ours = bellman_residual(moments, 0.9, ridge=0.0)
    masked = next_phi * ~terminated[:, None]
    m = np.linalg.lstsq(phi, 0.9 * masked, rcond=None)[0].T
    rho = np.linalg.lstsq(phi, rewards, rcond=None)[0]
    e_phi, e_r = 0.9 * masked - phi @ m.T, rewards - phi @ rho
    np.testing.assert_allclose(ours.transition, e_phi.T @ e_phi / len(phi), atol=1e-10)
    np.testing.assert_allclose(ours.cross, e_phi.T @ e_r / len(phi), atol=1e-10)
    assert ours.reward == pytest.approx((e_r**2).mean())
    assert ours.reward_share == pytest.approx((e_r**2).mean() / rewards.var())
    np.testing.assert_allclose(ours.operator, m.T, atol=1e-8)
    w = np.random.default_rng(1).normal(size=(5, 20_000))
    ratio = np.sqrt(((e_phi @ w) ** 2).mean(axis=0) / ((phi @ w) ** 2).mean(axis=0))
    assert ratio.max() <= ours.relative * (1 + 1e-9)
    assert ratio.max() > 0.9 * ours.relative


def misses(moments, w1, discount, radius):
    """Definition 1's inner minimum for each row of w1, by a bisection of its own, not by bcrl's."""
    mean = moments.mean
    values, vectors = np.linalg.eigh(mean.sigma)
    ahead = w1 @ mean.sigma_next * w1
    target = mean.reward_square + 2 * discount * w1 @ mean.e + discount**2 * ahead.sum(axis=1)
    y = (mean.b + discount * w1 @ mean.c.T) @ vectors
    low, high = np.zeros(len(w1)), np.full(len(w1), 1e6)
    for _ in range(80):
        middle = 0.5 * (low + high)
        inside = np.linalg.norm(y / (values + middle[:, None]), axis=1) <= radius
        low, high = np.where(inside, low, middle), np.where(inside, middle, high)
    w2 = y / (values + high[:, None])
    return np.sqrt(np.maximum(target - 2 * (w2 * y).sum(axis=1) + (w2**2 * values).sum(axis=1), 0.0))


@pytest.mark.parametrize("radius", [0.1, 0.5, 2.0, 10.0])
@pytest.mark.parametrize(("seed", "stretch"), [(1, 1.0), (2, 1.0), (0, 0.15)])
def test_eps_nu_is_the_max_min_of_the_definition(radius, seed, stretch):
    """Against a fine search of the sphere in three dimensions; the ball binds in most of these cases."""
    phi, next_phi, rewards, terminated = random_data(seed=seed, d=3)
    moments = Moments.from_features(phi, stretch * next_phi * 2.0, rewards, terminated)
    residual = bellman_residual(moments, 0.95, ridge=0.0)
    found = epsilon_nu(residual, radius)
    w = np.random.default_rng(0).normal(size=(60_000, 3))
    w *= radius / np.linalg.norm(w, axis=1)[:, None]
    near = w[misses(moments, w, 0.95, radius).argmax()] + 0.03 * radius * w[:5000] / radius
    near *= radius / np.linalg.norm(near, axis=1)[:, None]
    best = misses(moments, near, 0.95, radius).max()
    assert best <= found.upper * (1 + 1e-9)
    assert found.lower == pytest.approx(best, rel=1e-3)
    assert found.lower <= found.upper <= 1.1 * found.lower
    assert misses(moments, found.worst[None], 0.95, radius)[0] == pytest.approx(found.lower, rel=1e-6)
    assert found.exact == (found.lower == found.upper)


def test_the_best_answer_in_the_whole_span_says_too_little():
    """F20: w2 outside of the ball made eps_nu 0.59 where the max-min is 0.97."""
    phi, next_phi, rewards, terminated = random_data(seed=1, d=3)
    moments = Moments.from_features(phi, 2.0 * next_phi, rewards, terminated)
    residual = bellman_residual(moments, 0.95, ridge=0.0)
    w = maximise_in_ball(residual.transition, residual.cross, 0.5)
    in_span = np.sqrt(w @ residual.transition @ w + 2 * residual.cross @ w + residual.reward)
    found = epsilon_nu(residual, 0.5)
    assert not found.exact and found.lower > 1.3 * in_span


@pytest.mark.parametrize("radius", [0.3, 1.0, 100.0])
def test_hard_case_fills_the_norm_with_the_top_eigenvector(radius):
    matrix, linear = np.diag([3.0, 3.0, 1.0, 0.5]), np.array([0.0, 0.0, 0.4, -0.2])
    w = maximise_in_ball(matrix, linear, radius)
    value = w @ matrix @ w + 2 * linear @ w
    assert np.linalg.norm(w) == pytest.approx(radius)
    trial = np.random.default_rng(0).normal(size=(4, 200_000))
    trial *= radius / np.linalg.norm(trial, axis=0)
    best = (np.einsum("dk,de,ek->k", trial, matrix, trial) + 2 * linear @ trial).max()
    assert best <= value * (1 + 1e-12)
    assert best > value * (1 - 1e-2)


def test_nearly_hard_and_flat_cases():
    for tiny in (1e-9, 1e-14, 0.0):
        w = maximise_in_ball(np.diag([2.0, 1.0]), np.array([tiny, 0.1]), 1.0)
        assert w @ np.diag([2.0, 1.0]) @ w + 0.2 * w[1] == pytest.approx(2.0 + 0.01, rel=1e-6)
    flat = maximise_in_ball(np.zeros((3, 3)), np.array([0.0, 2.0, 0.0]), 1.5)
    np.testing.assert_allclose(flat, [0.0, 1.5, 0.0], atol=1e-9)
    assert np.linalg.norm(maximise_in_ball(np.zeros((3, 3)), np.zeros(3), 1.5)) == pytest.approx(1.5)


def test_complete_features_have_no_residual_once_noise_is_taken_out():
    world = low_rank()
    flat = transitions(world.episodes(3000, 20, np.random.default_rng(0)))
    data, moments = data_of(world, 3000, 20)
    states = flat["observations"].argmax(axis=1)
    table = np.einsum("sa,sad->sd", world.target_table, world.feature_table)
    draws = [world.step(states, flat["actions"], np.random.default_rng(k))[1] for k in (5, 6)]
    expected = world.transition[states, flat["actions"]] @ table
    naive = bellman_residual(moments, world.discount)
    pairs = bellman_residual(moments, world.discount, next_second=next_pairs(*(table[d] for d in draws)))
    held_out = bellman_residual(moments, world.discount, noise=next_noise(data.next_phi, expected))
    size = np.trace(naive.transition)
    assert np.trace(pairs.transition) < 0.05 * size
    assert np.trace(held_out.transition) < 0.05 * size
    assert held_out.relative < 0.3 * naive.relative
    clean, noisy = epsilon_nu(held_out, 1.0), epsilon_nu(naive, 1.0)
    assert clean.upper < noisy.lower and clean.noise_removed and not noisy.noise_removed
    underfit = bellman_residual(
        moments, world.discount, noise=next_noise(data.next_phi, np.zeros_like(expected))
    )
    assert underfit.clipped > 0.5 * size
    with pytest.raises(BadInput, match="pass one"):
        bellman_residual(moments, 0.9, next_second=expected, noise=expected)


def test_corrected_residual_equals_the_exact_one_on_incomplete_features():
    base = random_tabular(seed=2)
    mix = np.random.default_rng(0).normal(size=(24, 6))
    world = type(base)(**{**base.__dict__, "feature_table": base.feature_table @ mix})
    flat = transitions(world.episodes(6000, 25, np.random.default_rng(0)))
    states = flat["observations"].argmax(axis=1)
    data, moments = data_of(world, 6000, 25)
    table = np.einsum("sa,sad->sd", world.target_table, world.feature_table)
    keep = (1.0 - world.ends)[states, flat["actions"]][:, None]
    expected = keep * (world.transition[states, flat["actions"]] @ table)
    exact = bellman_residual(
        Moments.from_features(data.phi, expected, data.rewards, np.zeros(len(keep), bool)), 0.9
    )
    masked = data.next_phi * ~data.terminated[:, None]
    corrected = bellman_residual(moments, 0.9, noise=next_noise(masked, expected))
    naive = bellman_residual(moments, 0.9)
    assert corrected.relative == pytest.approx(exact.relative, rel=0.05)
    assert naive.relative > 1.1 * exact.relative


def test_leverage_averages_the_dimension_over_the_data():
    world = lqr()
    data, moments = data_of(world)
    ours = leverage(data.phi, whiten(moments.mean.sigma, ridge=0.0))
    assert ours.mean() == pytest.approx(data.phi.shape[1], rel=1e-8)
    one = data.phi[7]
    assert ours[7] == pytest.approx(one @ np.linalg.solve(moments.mean.sigma, one))
    far = leverage(world.features(np.array([[30.0, 30.0]]), np.array([[5.0]])), whiten(moments.mean.sigma))
    assert far[0] > 100 * data.phi.shape[1]


def test_an_early_end_is_in_the_occupancys_mass():
    """F26: normalised to 1, kappa was 1 where it is 0.1: rollouts end at once, and so does the log."""
    phi, at_once = np.ones((50, 1)), np.ones(50, dtype=bool)
    moments = Moments.from_features(phi, phi, np.zeros(50), at_once)
    ended = occupancy_moment(phi, np.zeros(50), at_once, 0.9)
    assert kappa(moments, ended).kappa == pytest.approx(0.1, rel=0.1)  # Sigma's ridge is 1 / 50
    # A record that was cut off says nothing of the rest: it looks like what was seen.
    cut = occupancy_moment(phi, np.zeros(50), ~at_once, 0.9)
    assert kappa(moments, cut).kappa == pytest.approx(1.0, rel=0.1)
    half = occupancy_moment(phi, np.tile([0, 1], 25), np.tile([False, True], 25), 0.9)
    assert half[0, 0] == pytest.approx(1.0 - 0.9**2)


def test_kappa_from_rollouts_against_exact_occupancy():
    world = random_tabular(seed=1)
    _, moments = data_of(world, 4000, 30)
    rolled = world.episodes(4000, 60, np.random.default_rng(3), policy=world.target)
    flat = transitions(rolled)
    time = np.concatenate([np.arange(len(e["rewards"])) for e in rolled])
    phi = world.features(flat["observations"], flat["actions"])
    second = occupancy_moment(phi, time, flat["terminated"], world.discount)
    exact = world.occupancy().reshape(-1)
    ratio = exact / np.diag(moments.mean.sigma)
    ours = kappa(moments, second)
    assert ours.kappa == pytest.approx(ratio.max(), rel=0.1)
    assert ours.mean_leverage == pytest.approx(ratio.sum(), rel=0.1)
    own = kappa(moments, moments.mean.sigma)
    assert own.kappa == pytest.approx(1.0, abs=0.01)
