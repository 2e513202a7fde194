"""The paper's statements, tied to code: the proposition both ways, and errors below the theorem's bound."""

import math

import numpy as np
import pytest

from bcrl.errors import BadInput
from bcrl.linear import (
    Moments,
    bellman_residual,
    end_to_end_bound,
    epsilon_nu,
    lspe,
    lspe_bound,
    representation_bound,
)
from bcrl.linear.theory import backup_weights, largest_map_norm, map_from_backups, radius_from_map
from bcrl_bench.worlds import low_rank, random_tabular


def population(world, nu):
    """Moments of the exact distribution nu over (s, a), gbar for phi' and the mean reward; count is 1."""
    phi = world.feature_table.reshape(nu.size, -1)
    table = np.einsum("sa,sad->sd", world.target_table, world.feature_table)
    gbar = ((1.0 - world.ends)[:, :, None] * (world.transition @ table)).reshape(nu.size, -1)
    reward, weight = world.reward.reshape(-1), nu.reshape(-1)
    return Moments(
        sigma=(phi.T * weight) @ phi,
        c=(phi.T * weight) @ gbar,
        b=(phi.T * weight) @ reward,
        sigma_next=(gbar.T * weight) @ gbar,
        e=(gbar.T * weight) @ reward,
        reward_square=float(weight @ reward**2),
        count=1,
        reward=float(weight @ reward),
    )


def draw_transitions(world, nu, count, rng):
    """Independent transitions with (s, a) ~ nu, as the theorems assume."""
    states, actions = np.divmod(rng.choice(nu.size, size=count, p=nu.reshape(-1)), nu.shape[1])
    rewards, following, ended = world.step(states, actions, rng)
    table = np.einsum("sa,sad->sd", world.target_table, world.feature_table)
    return world.feature_table[states, actions], table[following], rewards, ended


def small_world(seed, features=None):
    """Rewards in [0, 1] without noise, features of norm at most 1."""
    base = random_tabular(seed=seed, num_states=4, num_actions=2, discount=0.7, reward_std=0.0)
    tables = {**base.__dict__, "reward": base.reward / 2.0}
    if features is not None:
        mixed = base.feature_table @ features
        tables["feature_table"] = mixed / np.linalg.norm(mixed, axis=2).max()
    return type(base)(**tables)


def backup(world, weights):
    """r + discount E[weights^T phi(s', pi)] at every (s, a), from the tables."""
    table = np.einsum("sa,sad->sd", world.target_table, world.feature_table)
    return world.reward + world.discount * (1.0 - world.ends) * (world.transition @ (table @ weights))


@pytest.mark.parametrize("seed", range(5))
def test_map_makes_features_complete_with_the_stated_radius(seed):
    """(rho, M) with ||M|| < 1 => the backup of every w1 in the ball is w2 = rho + M^T w1 in the ball."""
    world = small_world(seed)
    table = np.einsum("sa,sad->sd", world.target_table, world.feature_table)
    gbar = ((1.0 - world.ends)[:, :, None] * (world.transition @ table)).reshape(8, 8)
    rho, m = world.reward.reshape(-1), world.discount * gbar.T
    assert np.linalg.norm(m, 2) < 1.0
    radius = radius_from_map(rho, m)
    for w1 in np.random.default_rng(seed).normal(size=(100, 8)):
        w1 *= radius / np.linalg.norm(w1)
        w2 = backup_weights(rho, m, w1)
        assert np.linalg.norm(w2) <= radius * (1 + 1e-12)
        np.testing.assert_allclose(world.feature_table @ w2, backup(world, w1), atol=1e-10)
    residual = bellman_residual(population(world, np.full((4, 2), 1.0 / 8.0)), world.discount, ridge=0.0)
    found = epsilon_nu(residual, radius)
    assert found.exact and found.upper < 1e-6


def test_low_rank_features_are_complete():
    world = low_rank()
    residual = bellman_residual(population(world, np.full((30, 3), 1.0 / 90.0)), world.discount, ridge=0.0)
    w = np.random.default_rng(0).normal(size=5)
    ours = world.feature_table @ backup_weights(residual.rho, residual.operator.T, w)
    np.testing.assert_allclose(ours, backup(world, w), atol=1e-8)
    assert epsilon_nu(residual, 10.0).upper < 1e-5


def test_complete_features_yield_the_map_with_the_stated_norm():
    """Completeness in a ball => (rho, M) of the backups are linear, and ||M||^2 <= 1 - ||rho||^2 / W^2."""
    world = small_world(seed=0)
    moments = population(world, np.full((4, 2), 1.0 / 8.0))
    residual = bellman_residual(moments, world.discount, ridge=0.0)
    reach = np.linalg.norm(residual.operator, 2)
    assert reach < 1.0
    radius = float(np.linalg.norm(residual.rho) / (1.0 - reach))
    assert epsilon_nu(residual, radius).exact and epsilon_nu(residual, radius).upper < 1e-6
    ends = np.concatenate([np.zeros((1, 8)), radius * np.eye(8)])
    backups = np.stack([residual.rho + residual.operator @ w for w in ends])
    assert np.linalg.norm(backups, axis=1).max() <= radius * (1 + 1e-12)
    rho, m = map_from_backups(backups, radius)
    phi = world.feature_table.reshape(8, 8)
    table = np.einsum("sa,sad->sd", world.target_table, world.feature_table)
    gbar = ((1.0 - world.ends)[:, :, None] * (world.transition @ table)).reshape(8, 8)
    np.testing.assert_allclose(phi @ m.T, world.discount * gbar, atol=1e-10)
    np.testing.assert_allclose(phi @ rho, world.reward.reshape(-1), atol=1e-10)
    assert np.linalg.norm(m, 2) <= largest_map_norm(rho, radius) + 1e-12


def test_no_map_exists_for_features_that_are_not_complete():
    world = small_world(seed=0, features=np.random.default_rng(0).normal(size=(8, 3)))
    residual = bellman_residual(population(world, np.full((4, 2), 1.0 / 8.0)), world.discount, ridge=0.0)
    assert epsilon_nu(residual, 1.0).lower > 0.05
    assert residual.relative > 0.05


@pytest.mark.parametrize("complete", [True, False])
def test_measured_error_is_below_the_theorems_bound_in_every_replication(complete):
    features = None if complete else np.random.default_rng(5).normal(size=(8, 6))
    world = small_world(seed=3, features=features)
    nu = np.full((4, 2), 1.0 / 8.0)
    moments = population(world, nu)
    radius, k, count = 8.0, 60, 2000
    residual = bellman_residual(moments, world.discount, ridge=0.0)
    occupancy = world.occupancy()
    ratio = float((occupancy / nu).max())
    phi = world.feature_table.reshape(8, -1)
    whitener = np.linalg.inv(np.linalg.cholesky(moments.sigma))
    second = (phi.T * occupancy.reshape(-1)) @ phi
    condition = float(np.linalg.eigvalsh(whitener @ second @ whitener.T)[-1])
    bound = lspe_bound(
        discount=world.discount,
        iterations=k,
        dim=phi.shape[1],
        count=count,
        radius=radius,
        epsilon=0.0 if complete else epsilon_nu(residual, radius).upper,
        kappa=condition,
        density_ratio=ratio,
        delta=0.05,
    )
    x0 = world.start_features()
    errors = []
    for seed in range(40):
        arrays = draw_transitions(world, nu, count, np.random.default_rng(seed))
        ours = lspe(
            Moments.from_features(*arrays),
            world.discount,
            iterations=k,
            tolerance=0.0,
            solver="ball",
            radius=radius,
        )
        errors.append(abs(float(x0 @ ours.theta) - world.value))
    assert max(errors) < bound.total
    if complete:
        assert max(errors) < 0.1 * bound.largest


def test_bias_of_incomplete_features_is_below_the_completeness_term_alone():
    """Population moments have no sampling error: iteration and completeness terms must carry the bound."""
    for seed in range(10):
        world = small_world(seed=seed, features=np.random.default_rng(seed).normal(size=(8, 7)))
        nu = np.full((4, 2), 1.0 / 8.0)
        moments = population(world, nu)
        radius, k = 10.0, 40
        residual = bellman_residual(moments, world.discount, ridge=0.0)
        ours = lspe(moments, world.discount, iterations=k, tolerance=0.0, solver="ball", radius=radius)
        bound = lspe_bound(
            discount=world.discount,
            iterations=k,
            dim=7,
            count=10**6,
            radius=radius,
            epsilon=epsilon_nu(residual, radius).upper,
            kappa=1.0,
            density_ratio=float((world.occupancy() / nu).max()),
        )
        error = abs(float(world.start_features() @ ours.theta) - world.value)
        assert error <= bound.terms["iteration"] + bound.terms["completeness"]


def test_terms_by_hand():
    bound = lspe_bound(
        discount=0.99, iterations=1000, dim=512, count=100_000, radius=10.0, epsilon=0.01, kappa=4.0
    )
    assert bound.terms["iteration"] == pytest.approx(0.99**500 / 0.01) == pytest.approx(0.657, abs=1e-3)
    assert bound.terms["completeness"] is None and bound.total is None and bound.vacuous
    sampling = 480 * 2 * 11 * 512 * math.log(1e5) * math.sqrt(math.log(200)) / (1e-4 * math.sqrt(1e5))
    assert bound.terms["sampling"] == pytest.approx(sampling)
    known = lspe_bound(
        discount=0.5, iterations=10, dim=2, count=100, radius=1.0, epsilon=0.3, kappa=None, density_ratio=4.0
    )
    assert known.terms["completeness"] == pytest.approx(4 * 2 * 0.3 / 0.25)
    assert known.terms["sampling"] is None and known.largest == 2.0
    assert (
        lspe_bound(discount=0.5, iterations=10, dim=2, count=100, radius=1.0, epsilon=0.0, kappa=1.0).total
        is not None
    )


def test_units_scale_back():
    """Rewards ten times larger: every term ten times larger, with W and eps in the new unit."""
    arguments = {
        "discount": 0.9,
        "iterations": 50,
        "dim": 3,
        "count": 1000,
        "kappa": 2.0,
        "density_ratio": 3.0,
    }
    one = lspe_bound(**arguments, radius=2.0, epsilon=0.1)
    ten = lspe_bound(**arguments, radius=20.0, epsilon=1.0, reward_bound=10.0)
    half = lspe_bound(**arguments, radius=4.0, epsilon=0.1, feature_bound=0.5)
    for name, term in one.terms.items():
        assert ten.terms[name] == pytest.approx(10 * term)
        assert half.terms[name] == pytest.approx(term)


def test_representation_theorem_and_its_condition():
    few = {
        "discount": 0.9,
        "dim": 4,
        "radius": 2.0,
        "coverage": 0.2,
        "log_features": math.log(50),
        "delta": 0.05,
    }
    bound = representation_bound(**few, count=1000, log_predictors=math.log(20))
    c2 = (96 * math.sqrt(math.log(50)) + 4 * 2 + 4 * math.sqrt(math.log(20))) / 0.05
    assert bound.required == pytest.approx(c2**2) and bound.precondition is False and bound.vacuous
    fit = 13 * 4 * 9 * math.sqrt(math.log(4 * 2 * 50 * 1000 / 0.05)) / math.sqrt(1000)
    assert bound.terms["features"] == pytest.approx(fit)
    predict = 7 * 0.9 * 3 * math.sqrt(math.log(2 * 20 / 0.05)) / math.sqrt(1000)
    assert bound.terms["predictors"] == pytest.approx(predict)
    deterministic = representation_bound(**few, count=10**9, log_predictors=None)
    assert (
        deterministic.terms["predictors"] == 0.0
        and deterministic.precondition is True
        and not deterministic.vacuous
    )


def test_end_to_end_chains_the_two():
    few = {
        "discount": 0.5,
        "dim": 2,
        "radius": 1.0,
        "coverage": 0.25,
        "log_features": 1.0,
        "log_predictors": None,
    }
    learned = representation_bound(**few, count=10**8)
    bound = end_to_end_bound(**few, count=10**8, iterations=100, density_ratio=4.0)
    assert bound.terms["completeness"] == pytest.approx(4 * 2 * learned.total / 0.25)
    direct = lspe_bound(
        discount=0.5, iterations=100, dim=2, count=10**8, radius=1.0, epsilon=0.0, kappa=4 / 0.25
    )
    assert bound.terms["sampling"] == pytest.approx(direct.terms["sampling"])
    assert bound.required == learned.required and bound.precondition is True
    assert end_to_end_bound(**few, count=10**8, iterations=100).total is None


@pytest.mark.parametrize(("name", "value"), [("delta", 0.1), ("delta", 0.0), ("discount", 1.0), ("count", 1)])
def test_outside_the_theorem_is_refused(name, value):
    arguments = {
        "discount": 0.9,
        "iterations": 5,
        "dim": 2,
        "count": 10,
        "radius": 1.0,
        "epsilon": 0.0,
        "delta": 0.05,
    }
    with pytest.raises(BadInput):
        lspe_bound(**{**arguments, name: value})


def test_proposition_refuses_an_expanding_map():
    with pytest.raises(BadInput, match="below 1"):
        radius_from_map(np.ones(2), np.eye(2))
