"""Gymnasium's environments as copies of a stepped world. Their time limits are wrappers, left out here."""

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from bcrl_bench.proving.stepped import Simulator

Array = NDArray[Any]


class GymSimulator(Simulator):
    """One environment without its time limit; continuous actions in [-1, 1] are spread over its box."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.env = env
        space = env.action_space
        self.box = space if isinstance(space, spaces.Box) else None
        self.action_dim = 0 if self.box is None else self.box.shape[0]

    def reset(self, seed: int) -> None:
        """A start of the environment's own distribution."""
        self.observation = np.asarray(self.env.reset(seed=seed)[0], dtype=np.float64)

    def step(self, action: Array) -> tuple[float, bool]:
        """The reward, and whether the world ended."""
        own = int(action) if self.box is None else spread(action, self.box)
        observation, reward, terminated, _, _ = self.env.step(own)
        self.observation = np.asarray(observation, dtype=np.float64)
        return float(reward), bool(terminated)


def spread(action: Array, box: spaces.Box) -> Array:
    """An action of [-1, 1] in a box's own units, clipped to it."""
    share = (np.minimum(np.maximum(action, -1.0), 1.0) + 1.0) / 2.0
    return np.asarray(box.low + share * (box.high - box.low), dtype=box.dtype)


def gym_copies(name: str, **options: Any) -> Callable[[], GymSimulator]:  # noqa: ANN401 - Gymnasium's own
    """Makes copies of `gymnasium.make(name, **options)`."""

    def make() -> GymSimulator:
        with warnings.catch_warnings():  # Box2D's binding warns at import, and crashes where that is an error
            warnings.simplefilter("ignore", DeprecationWarning)
            return GymSimulator(gymnasium.make(name, **options).unwrapped)

    return make


def ant_copies() -> Callable[[], GymSimulator]:
    """The ant seen by its joints alone (27 numbers): contact forces would be 78 more, mostly zero."""
    return gym_copies("Ant-v5", include_cfrc_ext_in_observation=False)
