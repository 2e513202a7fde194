"""A world that is stepped one copy at a time (Gymnasium, dm_control), behind the ground's batched interface.

Actions are numbers in [-1, 1] for every such world with continuous actions, spread over the simulator's own
box; what lies outside is clipped by the world, so that the noise of a logging policy stays a plain Gaussian.
A time limit is no end: the world goes on.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Simulator(ABC):
    """One copy of a stepped world.

    Attributes:
        observation: what it shows now, (k,).
        action_dim: how many numbers an action has; 0 where it is the number of a choice.
    """

    observation: Array
    action_dim: int

    @abstractmethod
    def reset(self, seed: int) -> None:
        """A fresh start; the seed fixes it and all later luck."""

    @abstractmethod
    def step(self, action: Array) -> tuple[float, bool]:
        """The reward, and whether the world ended."""


@dataclass(frozen=True, eq=False)
class SteppedWorld:
    """Copies of one simulator, and the ladder of policies for it. A state is an array of copies.

    Attributes:
        make: another copy of the simulator.
        policies: the ladder, at least poor, medium, good and other.
        num_actions: of a discrete world; None where actions are continuous.
    """

    make: Callable[[], Simulator]
    policies: Mapping[str, Any]
    num_actions: int | None = None

    def start(self, num: int, rng: np.random.Generator) -> Array:
        """Fresh copies; each draws its start and all its later luck from a seed of its own."""
        state = np.empty(num, dtype=object)
        for i, seed in enumerate(rng.integers(2**31, size=num)):
            state[i] = self.make()
            state[i].reset(int(seed))
        return state

    def observe(self, state: Array) -> Array:
        """What the policies see, (n, k)."""
        return np.stack([one.observation for one in state])

    def step(
        self, state: Array, actions: Array, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], Array, NDArray[np.bool_]]:
        """Rewards, the same copies a step on, and which have ended; the copies hold their own luck."""
        del rng
        results = [one.step(action) for one, action in zip(state, actions, strict=True)]
        return np.array([reward for reward, _ in results]), state, np.array([ended for _, ended in results])
