"""Values of the tables by one linear solve, against plain walks through what they were made of."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from bcrl_bench.proving.families import icu_sepsis, maze


def agrees(exact: float, returns: list[float]) -> None:
    error = np.std(returns, ddof=1) / np.sqrt(len(returns))
    assert abs(np.mean(returns) - exact) < 3.5 * error
    assert error < 0.1 * abs(exact)


@pytest.fixture(scope="module")
def package():
    path = Path(find_spec("icu_sepsis").origin).parent / "envs" / "assets" / "dynamics.npz"
    with np.load(path) as stored:
        return {key: stored[key] for key in ("tx_mat", "r_mat", "d_0", "expert_policy")}


def test_clinicians_value_is_what_the_packages_own_tables_give(package):
    rng, returns = np.random.default_rng(0), []
    for _ in range(2000):
        state, earned, weight = rng.choice(716, p=package["d_0"]), 0.0, 1.0
        while state < 713:
            action = rng.choice(25, p=package["expert_policy"][state])
            after = rng.choice(716, p=package["tx_mat"][state, action])
            earned += weight * package["r_mat"][state, action, after]
            state, weight = after, 0.95 * weight
        returns.append(earned)
    world = icu_sepsis.make(0)
    agrees(world.exact_value(world.policies["medium"], 0.95, None), returns)


def test_sepsis_ladder_is_in_order_and_keeps_to_what_clinicians_did(package):
    world = icu_sepsis.make(0)
    values = [
        world.exact_value(world.policies[rung], 0.99, None) for rung in ("poor", "medium", "good", "other")
    ]
    assert values == sorted(values)
    assert all(
        policy.table[:713][package["expert_policy"][:713] == 0].max() == 0
        for policy in world.policies.values()
    )


def test_sepsis_ends_pay_once_and_states_are_told_apart():
    world = icu_sepsis.make(0)
    rng = np.random.default_rng(0)
    rewards, following, ended = world.step(world.start(3000, rng), rng.integers(0, 25, 3000), rng)
    assert (rewards == (following == icu_sepsis.SURVIVAL)).all()
    assert (ended == (following >= icu_sepsis.DEATH)).all() and 0 < ended.sum() < 3000
    assert len(np.unique(world.observe(np.arange(716)), axis=0)) == 716


def test_value_of_a_maze_is_what_a_walker_earns():
    world, rng, returns = maze.make(1), np.random.default_rng(0), []
    doors = maze.doors_of(np.random.default_rng([1, maze.SIDE]))
    table = world.policies["good"].table
    for _ in range(800):
        row, column = rng.integers(0, 3, 2)
        room, earned, weight = row * maze.SIDE + column, 0.0, 1.0
        while room != maze.SIDE**2 - 1:
            side = rng.choice(4, p=table[room])
            side = rng.integers(4) if rng.random() < maze.SLIP else side
            room = maze.beyond(room, side, doors)
            earned += weight * (maze.STEP + (room == maze.SIDE**2 - 1))
            weight *= 0.99
        returns.append(earned)
    agrees(world.exact_value(world.policies["good"], 0.99, None), returns)


@pytest.mark.parametrize("seed", range(maze.FAMILY.worlds))
def test_every_room_of_a_maze_leads_to_the_goal(seed):
    world = maze.make(seed)
    reached = np.linalg.matrix_power((world.transition.mean(axis=1) > 0).astype(float), 100)[:, -1] > 0
    assert reached.all()
