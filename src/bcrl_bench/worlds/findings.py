"""Small worlds on which bcrl once trusted a wrong number, with their true values (F6 to F17 of the findings).

    arrays, policy, truth, discount = f7_outcome_in_last_row()
    Dataset.from_arrays(**arrays, ends="terminated")

F6 tail of truncated records, F7 outcome in a last row without an end, F8 log noisy in half of the states,
F9 hidden confounder, F10 effect of the previous action, F11 large integers, F12 contradicted probabilities,
F13 hidden patients, F14 two transitions, F17 random censoring marked as the end.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bcrl.data.dataset import Array


class Case(NamedTuple):
    """A log, a policy and what it is worth.

    Attributes:
        arrays: arguments of `Dataset.from_arrays`.
        policy: observations to actions, or to probabilities.
        truth: its value from the start states, without a horizon.
        discount: of that value.
    """

    arrays: dict[str, Array]
    policy: Callable[[Array], Array]
    truth: float
    discount: float = 0.9


def f6_truncated_tail(seed=0) -> Case:
    """Rewards do not depend on actions, records are cut after 10 steps: every policy, the logging one too, is
    worth 10."""
    rng, count = np.random.default_rng(seed), 2000
    states, last = rng.normal(size=(count, 1)), _last_rows(count, 10)
    arrays = {
        "observations": states,
        "next_observations": _following(states, last, rng),
        "actions": rng.uniform(-1, 1, (count, 1)),
        "rewards": 1 + 0.1 * rng.normal(size=count),
        "terminated": np.zeros(count, bool),
        "truncated": last,
    }
    return Case(arrays, _zero, 10.0)


def f7_outcome_in_last_row(seed=0) -> Case:
    """0.1 a step and 5 in the last row of each visit; an episode column and no end flags. The truth if the
    visits end there."""
    rng, count = np.random.default_rng(seed), 3000
    last = _last_rows(count, 10)
    rewards = 0.1 + 0.02 * rng.normal(size=count) + last * (5 + 0.3 * rng.normal(size=count))
    arrays = {
        "observations": rng.normal(size=(count, 1)),
        "actions": rng.uniform(-1, 1, (count, 1)),
        "rewards": rewards,
        "terminated": np.zeros(count, bool),
        "episode": np.repeat(np.arange(count // 10), 10),
    }
    return Case(arrays, _zero, sum(0.9**t * 0.1 for t in range(10)) + 0.9**9 * 5)


def f8_noise_in_half(seed=0) -> Case:
    """Where s < 0 the log always plays 0; the policy plays 1 everywhere and earns nothing there."""
    rng, count = np.random.default_rng(seed), 2000
    states, last = rng.uniform(-1, 1, (count, 1)), _last_rows(count, 10)
    actions = np.where(states < 0, 0.0, rng.normal(size=(count, 1)))
    rewards = np.where(states < 0, 1 - actions**2, 1.0)[:, 0] + 0.05 * rng.normal(size=count)
    following = rng.uniform(-1, 1, (count, 1))
    following[:-1][~last[:-1]] = states[1:][~last[:-1]]
    arrays = {
        "observations": states,
        "next_observations": following,
        "actions": actions,
        "rewards": rewards,
        "terminated": np.zeros(count, bool),
        "truncated": last,
    }
    return Case(arrays, lambda x: np.ones((len(x), 1)), 5.0)


def f9_confounder(seed=0) -> Case:
    """A hidden severity per episode drives both the action and the reward; actions do nothing."""
    rng, episodes, length = np.random.default_rng(seed), 300, 10
    count = episodes * length
    severity = np.repeat(rng.integers(0, 2, episodes), length)
    actions = (rng.random(count) < np.where(severity == 1, 0.85, 0.15)).astype(int)
    states, last = rng.normal(size=(count, 2)), _last_rows(count, length)
    arrays = {
        "observations": states,
        "next_observations": _following(states, last, rng),
        "actions": actions,
        "rewards": 2.0 * severity + 0.2 + 0.1 * rng.normal(size=count),
        "terminated": np.zeros(count, bool),
        "truncated": last,
    }
    return Case(arrays, _always_one, 12.0)


def f10_previous_action(seed=0) -> Case:
    """The reward is 0.5 plus the previous action, which no observation holds; always acting 1 earns 0.5, then
    1.5 for ever."""
    rng, episodes, length = np.random.default_rng(seed), 200, 20
    count = episodes * length
    actions = rng.integers(0, 2, (episodes, length))
    before = np.concatenate([np.zeros((episodes, 1), int), actions[:, :-1]], axis=1)
    states, last = rng.normal(size=(count, 2)), _last_rows(count, length)
    arrays = {
        "observations": states,
        "next_observations": _following(states, last, rng),
        "actions": actions.ravel(),
        "rewards": (before + 0.5 + 0.1 * rng.normal(size=before.shape)).ravel(),
        "terminated": np.zeros(count, bool),
        "truncated": last,
    }
    return Case(arrays, _always_one, 14.0)


def f11_large_integers(seed=2) -> Case:
    """A position in tenths, stored as int64 with an offset of 1e9, which float32 cannot hold; the truth at
    starts=f11_starts()."""
    rng, episodes, length = np.random.default_rng(seed), 200, 20
    position, actions = rng.uniform(-1, 1, episodes), rng.uniform(-1, 1, (episodes, length))
    states, following = np.zeros((episodes, length)), np.zeros((episodes, length))
    for t in range(length):
        states[:, t] = position
        position = np.clip(0.95 * position + 0.05 * actions[:, t], -1, 1)
        following[:, t] = position
    arrays = {
        "observations": _in_tenths(states),
        "next_observations": _in_tenths(following),
        "actions": actions.reshape(-1, 1),
        "rewards": (1 + states + 0.02 * rng.normal(size=states.shape)).ravel(),
        "terminated": np.zeros(states.size, bool),
        "truncated": _last_rows(states.size, length),
    }
    truth = sum(0.9**t * (1 + 0.9 * 0.95**t) for t in range(300))
    return Case(arrays, lambda x: 0.0 * np.asarray(x, float), truth)


def f11_starts() -> Array:
    """Position 0.9, three times."""
    return np.full((3, 1), 10**9 + 9, np.int64)


def f12_contradicted_probabilities(seed=2) -> Case:
    """log_prob claims 1/2, the log plays action 1 in 30 % of its rows; the policy plays it in 60 %."""
    rng, count = np.random.default_rng(seed), 1200
    states, last, actions = rng.normal(size=(count, 1)), _last_rows(count, 3), rng.random(count) < 0.3
    arrays = {
        "observations": states,
        "next_observations": np.vstack([states[1:], states[:1]]),
        "actions": actions.astype(int),
        "rewards": 1.0 + 4 * actions + 0.1 * rng.normal(size=count),
        "terminated": last,
        "log_prob": np.full(count, np.log(0.5)),
    }
    return Case(arrays, lambda x: np.tile([0.4, 0.6], (len(x), 1)), (1 + 4 * 0.6) * (1 + 0.9 + 0.81))


def f13_hidden_patients(seed=0) -> Case:
    """Ten patients with a level of their own, forty episodes each, no column that says so: ten units, not
    four hundred."""
    rng, episodes, length = np.random.default_rng(seed), 400, 5
    count = episodes * length
    level = np.repeat(np.repeat(rng.normal(size=10), 40), length)
    states = rng.normal(size=(count, 1))
    arrays = {
        "observations": states,
        "next_observations": np.vstack([states[1:], states[:1]]),
        "actions": rng.uniform(-1, 1, (count, 1)),
        "rewards": 1 + level + 0.1 * rng.normal(size=count),
        "terminated": _last_rows(count, length),
    }
    return Case(arrays, _zero, sum(0.9**t for t in range(length)))


def f14_two_transitions() -> Case:
    """Nothing can be known from two rows."""
    arrays = {
        "observations": np.zeros((2, 1)),
        "actions": np.zeros((2, 1)),
        "rewards": np.ones(2),
        "terminated": np.array([False, True]),
    }
    return Case(arrays, _zero, float("nan"))


def f17_random_censoring(seed=0) -> Case:
    """Records are cut at random and the cut is marked as the end; the world goes on and is worth about 20."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(300):
        state, length = rng.normal(), 1 + rng.geometric(0.1)
        for t in range(length):
            action = rng.uniform(-1, 1)
            reward = 1 + 0.2 * np.tanh(state) + 0.05 * rng.normal()
            following = 0.8 * state + 0.2 * action + 0.1 * rng.normal()
            rows.append((state, action, reward, following, t == length - 1))
            state = following
    states, actions, rewards, nexts, last = (np.array(column) for column in zip(*rows, strict=True))
    arrays = {
        "observations": states[:, None],
        "next_observations": nexts[:, None],
        "actions": actions[:, None],
        "rewards": rewards,
        "terminated": last,
    }
    return Case(arrays, _zero, 20.0, 0.95)


def _last_rows(count, length) -> Array:
    return np.arange(count) % length == length - 1


def _following(states, last, rng) -> Array:
    """The next row's state; a new draw behind an episode's last row."""
    following = np.vstack([states[1:], states[:1]])
    following[last] = rng.normal(size=(last.sum(), states.shape[1]))
    return following


def _in_tenths(position) -> Array:
    return (np.round(position.reshape(-1, 1) * 10) + 10**9).astype(np.int64)


def _zero(observations) -> Array:
    return 0 * observations


def _always_one(observations) -> Array:
    return np.ones(len(observations), int)
