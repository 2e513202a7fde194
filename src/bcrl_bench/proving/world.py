"""What a world of the proving ground offers, and episodes in it.

A world runs many episodes at once. Its state is one array whose first axis is the episode; a simulator that
steps alone (Gymnasium, dm_control) puts its environments into an array of dtype object. What has ended is
taken out of the array, so `step` never sees it again.

A world may also have
    exact_value(policy, discount, horizon) -> float       then no rollouts are made for the value
    exact_v(policy, observations, discount, horizon) -> (n,)   V of these observations
    place(observations) -> (n, k)     where distances between states are measured (pixels: the state shown)
    logger_sees(state)                what the logging policies see, where that is not what is recorded
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array, Dataset
from bcrl_bench.worlds.base import draw, to_dataset

Observations = Array | dict[str, Array]
Policy = Any  # act(observations), sample + log_prob, or probabilities; and `reads`, as bcrl's policies have


class World(Protocol):
    """A simulator with its ladder of policies.

    Attributes:
        num_actions: None for continuous actions. Actions that are out of range are clipped by `step` itself.
        policies: "poor", "medium", "good" of one lineage and "other" of another. Continuous ones have `act`.
    """

    @property
    def num_actions(self) -> int | None: ...

    @property
    def policies(self) -> Mapping[str, Policy]: ...

    def start(self, num: int, rng: np.random.Generator) -> Array: ...

    def observe(self, state: Array) -> Observations: ...

    def step(
        self, state: Array, actions: Array, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], Array, NDArray[np.bool_]]:
        """Rewards, next state, terminated: the world's own ends only, never a time limit."""
        ...


@dataclass(frozen=True, eq=False)
class Step:
    """One step of those episodes that have not ended.

    Attributes:
        time: number of the step, from 0.
        alive: which episodes these are, shape (n,).
        observations, actions, log_prob, rewards, terminated: of each of them; log_prob is nan where the
            policy is deterministic.
        following: the next observations, of the same episodes.
        state: before the step.
    """

    time: int
    alive: NDArray[np.int64]
    observations: Observations
    actions: Array
    log_prob: NDArray[np.float64]
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    following: Observations
    state: Array


def play(
    world: World,
    policy: Policy,
    state: Array,
    length: int,
    rng: np.random.Generator,
    *,
    visit: Callable[[Step], None],
    look: Callable[[Array], Observations] | None = None,
) -> None:
    """Act from these states for `length` steps or to the end, and show every step; `look`: what the policy
    sees.
    """
    alive = np.arange(len(state))
    seen = world.observe(state)
    for time in range(length):
        view = seen if look is None else look(state)
        actions, log_prob = draw(policy, view, rng)
        before = state if state.dtype == object else state.copy()
        rewards, state, ended = world.step(state, actions, rng)
        following = world.observe(state)
        visit(Step(time, alive, seen, actions, log_prob, rewards, ended, following, before))
        alive, state, seen = alive[~ended], state[~ended], rows_of(following, ~ended)
        if not len(alive):
            return


def rows_of(observations: Observations, rows: NDArray[Any]) -> Observations:
    """Some rows of observations of either form."""
    if isinstance(observations, Mapping):
        return {key: value[rows] for key, value in observations.items()}
    return np.asarray(observations[rows])


def record(world: World, policy: Policy, num: int, length: int, rng: np.random.Generator) -> Dataset:
    """A log of `num` episodes; those that the world has not ended are cut after `length` steps."""
    steps: list[Step] = []
    look = getattr(world, "logger_sees", None)
    play(world, policy, world.start(num, rng), length, rng, visit=steps.append, look=look)
    log: Dataset = to_dataset(world, [_episode(steps, number) for number in range(num)])
    # probabilities of who saw more would let weights undo what is hidden
    return log if look is None else replace(log, log_prob=None)


def _episode(steps: list[Step], number: int) -> dict[str, Any]:
    own = [(step, at) for step in steps if (at := _position(step.alive, number)) is not None]
    last, where = own[-1]
    terminated = np.array([step.terminated[at] for step, at in own])
    truncated = np.zeros(len(own), dtype=bool)
    truncated[-1] = not terminated[-1]
    seen = [rows_of(step.observations, np.array([at])) for step, at in own]
    seen.append(rows_of(last.following, np.array([where])))
    return {
        "observations": joined(seen),
        "actions": np.stack([step.actions[at] for step, at in own]),
        "rewards": np.array([step.rewards[at] for step, at in own], dtype=np.float64),
        "terminated": terminated,
        "truncated": truncated,
        "log_prob": np.array([step.log_prob[at] for step, at in own]),
    }


def _position(alive: NDArray[np.int64], number: int) -> int | None:
    at = int(np.searchsorted(alive, number))
    return at if at < len(alive) and alive[at] == number else None


def joined(parts: list[Any]) -> Observations:
    """Observations of either form, one after another."""
    if isinstance(parts[0], Mapping):
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    return np.concatenate(parts)
