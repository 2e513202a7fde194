"""The bound is what counting transitions reaches, on a world small enough to log again and again."""

import numpy as np

from bcrl_bench.proving.arrivals import Arrivals, arrivals
from bcrl_bench.studies.icu_sepsis import bound

STATES, ACTIONS, EPISODES, LOGS = 4, 2, 400, 500  # the last state is terminal
DISCOUNT = 0.95


def small_world():
    rng = np.random.default_rng(3)
    transition = rng.dirichlet(np.ones(STATES), size=(STATES, ACTIONS))
    terminal = np.arange(STATES) == STATES - 1
    first = np.array([0.5, 0.3, 0.2, 0.0])
    fields = arrivals(transition, np.array([0.0, 0.2, -0.1, 1.0]), terminal, first, np.eye(STATES))
    return Arrivals(**fields, reward_std=0.0)


def counted(world, logging, target, rng):
    """The target's value in the model of counted transitions and starts."""
    state = world.start(EPISODES, rng)
    starts = np.bincount(state, minlength=STATES) / EPISODES
    counts = np.zeros((STATES, ACTIONS, STATES))
    while len(state):
        actions = (rng.random(len(state)) < logging[state, 1]).astype(int)
        _, following, ended = world.step(state, actions, rng)
        np.add.at(counts, (state, actions, following), 1.0)
        state = following[~ended]
    model = counts / np.maximum(counts.sum(axis=2, keepdims=True), 1.0)
    onward = np.einsum("sa,sat->st", target, model)
    rewards = onward @ world.arriving
    onward[:, world.terminal] = 0.0
    return starts @ np.linalg.solve(np.eye(STATES) - DISCOUNT * onward, rewards)


def test_counting_transitions_reaches_the_bound():
    world, rng = small_world(), np.random.default_rng(0)
    logging, target = np.tile([0.7, 0.3], (STATES, 1)), np.tile([0.2, 0.8], (STATES, 1))
    value, variance = bound(world, logging, target, DISCOUNT)
    found = np.array([counted(world, logging, target, rng) for _ in range(LOGS)])
    least = np.sqrt(variance / EPISODES)
    assert abs(found.mean() - value) < 4 * least / np.sqrt(LOGS)
    assert 0.9 < found.std() / least < 1.1  # 500 logs know it to 3 %


def test_nothing_is_known_about_what_the_log_never_does():
    world = small_world()
    never, always = np.tile([1.0, 0.0], (STATES, 1)), np.tile([0.0, 1.0], (STATES, 1))
    assert bound(world, never, always, DISCOUNT)[1] == np.inf
