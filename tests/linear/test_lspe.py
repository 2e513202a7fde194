"""LSPE against its definition, its statuses, and its solvers."""

import numpy as np
import pytest
from scipy import optimize

from bcrl.errors import BadInput
from bcrl.estimate import Status
from bcrl.linear import Moments, lspe, whiten
from bcrl.linear.lspe import ball_multiplier, ball_projection
from bcrl_bench.worlds import bandit, chain, counterexample, linear_inputs, lqr, random_tabular


def problem(world=None, episodes=300, length=30, seed=0):
    world = world or random_tabular()
    data = linear_inputs(world, world.episodes(episodes, length, np.random.default_rng(seed)))
    return world, data, Moments.from_features(*data.arrays)


def regress_repeatedly(data, discount, steps):
    """The definition: one regression over all transitions per iteration."""
    masked = data.next_phi * ~data.terminated[:, None]
    theta, thetas, residuals = np.zeros(data.phi.shape[1]), [], []
    for _ in range(steps):
        target = data.rewards + discount * masked @ theta
        theta = np.linalg.lstsq(data.phi, target, rcond=None)[0]
        thetas.append(theta)
        residuals.append(np.mean((data.phi @ theta - target) ** 2))
    return np.array(thetas), np.array(residuals)


@pytest.mark.parametrize("solver", ["cholesky", "pinv"])
@pytest.mark.parametrize("make", [random_tabular, lqr])
def test_iterates_curve_and_residuals_equal_repeated_regression(solver, make):
    world, data, moments = problem(make())
    x0 = data.starts.mean(axis=0)
    thetas, residuals = regress_repeatedly(data, world.discount, 25)
    ours = lspe(moments, world.discount, start_features=x0, iterations=25, tolerance=0.0, solver=solver)
    assert ours.iterations == 25 and ours.status is Status.LIMIT
    np.testing.assert_allclose(ours.curve, thetas @ x0, rtol=1e-5)
    np.testing.assert_allclose(ours.residuals, residuals, rtol=1e-5, atol=1e-10)
    np.testing.assert_allclose(data.phi @ ours.theta, data.phi @ thetas[-1], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(data.phi @ ours.previous, data.phi @ thetas[-2], rtol=1e-4, atol=1e-4)


def test_changes_are_the_distance_of_value_functions_on_the_data():
    world, data, moments = problem()
    thetas, _ = regress_repeatedly(data, world.discount, 10)
    ours = lspe(moments, world.discount, iterations=10, tolerance=0.0)
    moved = np.diff(np.concatenate([np.zeros((1, len(thetas[0]))), thetas]), axis=0) @ data.phi.T
    np.testing.assert_allclose(ours.changes, np.sqrt((moved**2).mean(axis=1)), rtol=1e-5)


def test_the_limit_is_lstd_and_the_status_says_so():
    world, data, moments = problem()
    ours = lspe(moments, world.discount, start_features=data.starts)
    mean = moments.mean
    direct = np.linalg.solve(mean.sigma - world.discount * mean.c, mean.b)
    assert ours.status is Status.CONVERGED
    np.testing.assert_allclose(ours.lstd, direct, rtol=1e-5)
    np.testing.assert_allclose(ours.theta, direct, rtol=1e-4)
    assert ours.curve.shape == (ours.iterations, len(data.starts))
    radius = np.abs(np.linalg.eigvals(np.linalg.solve(mean.sigma, world.discount * mean.c))).max()
    assert ours.spectral_radius == pytest.approx(radius, rel=1e-5)


@pytest.mark.parametrize("make", [random_tabular, lqr, chain])
def test_horizon_gives_that_many_steps_also_without_discount(make):
    world, _, moments = problem(make(), episodes=3000, length=6 if make is chain else 30)
    for discount in (world.discount, 1.0):
        ours = lspe(moments, discount, start_features=world.start_features(), horizon=8)
        assert ours.status is Status.HORIZON and ours.iterations == 8
        assert ours.curve[-1] == pytest.approx(world.horizon_value(8, discount), rel=0.03)


def test_discount_zero_is_one_regression():
    world, _, moments = problem(bandit(), episodes=20_000, length=1)
    ours = lspe(moments, 0.0, start_features=world.start_features())
    assert ours.status is Status.CONVERGED and ours.iterations == 2
    assert ours.curve[-1] == pytest.approx(world.value, abs=0.03)
    assert ours.spectral_radius == 0.0


def test_counterexample_diverges_while_its_fixed_point_is_right():
    world, _, moments = problem(counterexample())
    ours = lspe(moments, world.discount, start_features=world.start_features())
    assert ours.spectral_radius > 1.0
    assert ours.status is Status.DIVERGED
    assert (
        np.isfinite(ours.theta).all() and np.isfinite(ours.curve).all() and np.isfinite(ours.residuals).all()
    )
    assert world.start_features() @ ours.lstd == pytest.approx(world.value, rel=1e-6)
    assert np.abs(ours.curve[-1]) > 1e6


def test_overflow_is_a_status_and_not_a_warning():
    world, _, moments = problem(counterexample())
    ours = lspe(
        moments, world.discount, start_features=world.start_features(), iterations=5000, tolerance=0.0
    )
    assert ours.status is Status.DIVERGED and ours.iterations < 5000
    assert np.isfinite(ours.residuals).all() and np.isfinite(ours.curve).all()
    horizon = lspe(moments, world.discount, horizon=5000)
    assert horizon.status is Status.DIVERGED


def test_budget_is_said_when_it_ends_too_early():
    world, _, moments = problem()
    assert lspe(moments, world.discount, iterations=5).status is Status.LIMIT
    slow = lspe(moments, 0.9, tolerance=1e-300)
    assert slow.iterations == 200


def test_slow_growth_is_divergence_even_before_overflow():
    _, _, moments = problem(counterexample(jump=0.2, small=0.5))
    radius = lspe(moments, 0.95).spectral_radius
    discount = 0.95 * 1.02 / radius
    ours = lspe(moments, discount)
    assert 1.0 < ours.spectral_radius < 1.03
    assert ours.status is Status.DIVERGED


def test_float32_pseudo_inverse_counts_what_it_drops():
    rng = np.random.default_rng(0)
    phi = rng.normal(size=(500, 6))
    phi[:, 5] = phi[:, 0] + 1e-4 * rng.normal(size=500)
    arrays = (phi, 0.5 * phi, rng.normal(size=500), np.zeros(500, dtype=bool))
    moments = Moments.from_features(*arrays)
    assert lspe(moments, 0.9, solver="pinv").whitening.truncated == 0
    faithful = lspe(moments, 0.9, solver="pinv32")
    assert faithful.whitening.truncated == 1
    float32 = np.linalg.pinv(
        moments.mean.sigma.astype(np.float32), rcond=6 * np.finfo(np.float32).eps, hermitian=True
    )
    theta = np.zeros(6)
    for _ in range(faithful.iterations):
        theta = float32 @ (moments.mean.b + 0.9 * moments.mean.c @ theta)
    np.testing.assert_allclose(phi @ faithful.theta, phi @ theta, rtol=1e-3, atol=1e-4)


def test_dead_features_do_no_harm():
    world, data, _ = problem()
    wide = [np.concatenate([a, np.zeros((len(a), 3))], axis=1) for a in (data.phi, data.next_phi)]
    moments = Moments.from_features(*wide, data.rewards, data.terminated)
    plain = lspe(Moments.from_features(*data.arrays), world.discount)
    for solver in ("cholesky", "pinv", "pinv32"):
        ours = lspe(moments, world.discount, solver=solver)
        np.testing.assert_allclose(wide[0] @ ours.theta, data.phi @ plain.theta, rtol=1e-4)


def test_whitening_makes_the_second_moment_the_identity():
    _, _, moments = problem()
    for inverse in ("cholesky", "pinv"):
        matrix = whiten(moments.mean.sigma, inverse=inverse, ridge=0.0).matrix
        np.testing.assert_allclose(
            matrix.T @ moments.mean.sigma @ matrix, np.eye(matrix.shape[1]), atol=1e-10
        )


@pytest.mark.parametrize("radius", [0.05, 0.5, 2.0, 50.0])
def test_ball_solution_equals_a_constrained_minimiser(radius):
    rng = np.random.default_rng(1)
    root = rng.normal(size=(6, 6))
    sigma, y = root @ root.T / 6, rng.normal(size=6)
    eigenvalues, vectors = np.linalg.eigh(sigma)
    ours = vectors @ ball_projection(eigenvalues, radius)(vectors.T @ y)
    found = optimize.minimize(
        lambda t: t @ sigma @ t - 2 * y @ t,
        np.zeros(6),
        jac=lambda t: 2 * (sigma @ t - y),
        constraints={"type": "ineq", "fun": lambda t: radius**2 - t @ t, "jac": lambda t: -2 * t},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(ours, found.x, atol=2e-5 * max(1.0, radius))
    assert np.linalg.norm(ours) <= radius * (1 + 1e-9)
    free = np.linalg.solve(sigma, y)
    if np.linalg.norm(free) > radius:
        assert ball_multiplier(vectors.T @ y, eigenvalues, radius) > 0.0
        rescaled = free * radius / np.linalg.norm(free)
        assert ours @ sigma @ ours - 2 * y @ ours < rescaled @ sigma @ rescaled - 2 * y @ rescaled


def test_ball_lspe_stays_in_the_ball_and_equals_the_free_one_when_the_ball_is_large():
    world, data, moments = problem(counterexample())
    small = lspe(moments, world.discount, start_features=data.starts.mean(axis=0), solver="ball", radius=3.0)
    assert np.linalg.norm(small.theta) <= 3.0 * (1 + 1e-9)
    assert np.abs(small.curve).max() <= 3.0 * np.linalg.norm(data.starts.mean(axis=0)) * (1 + 1e-9)
    assert small.status is not Status.DIVERGED
    tame, _, tame_moments = problem(random_tabular())
    ball = lspe(tame_moments, tame.discount, solver="ball", radius=1e4)
    free = lspe(tame_moments, tame.discount, solver="pinv")
    np.testing.assert_allclose(ball.theta, free.theta, rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"discount": 1.0}, "together with a horizon"),
        ({"discount": -0.1}, "expected 0 <= discount"),
        ({"discount": 0.9, "horizon": 0}, "at least 1"),
        ({"discount": 0.9, "solver": "ball"}, "radius W"),
    ],
)
def test_bad_arguments_are_refused(arguments, words):
    _, _, moments = problem(episodes=5)
    with pytest.raises(BadInput, match=words):
        lspe(moments, **arguments)


def test_collapsed_features_are_refused():
    with pytest.raises(BadInput, match="collapsed"):
        lspe(
            Moments.from_features(np.zeros((5, 2)), np.zeros((5, 2)), np.ones(5), np.zeros(5, dtype=bool)),
            0.9,
        )
