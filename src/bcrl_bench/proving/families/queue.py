"""A queue whose server is paid by its speed: bursts of arrivals, five speeds, a waiting room of forty.

Seen: how many wait, and whether it is a burst. Reward: 0.6 for each served, less 0.04 for each that waits,
0.12 speed^1.5, and 1 for each turned away.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array
from bcrl_bench.proving.family import Family
from bcrl_bench.proving.world import Policy

SPEEDS, ROOM = 5, 40


@dataclass(frozen=True)
class Speed:
    """Grows with the number of those who wait; `burst` is added in a burst."""

    least: float
    slope: float
    burst: float
    reads: None = None

    def act(self, observations: Array) -> NDArray[np.int64]:
        seen = np.asarray(observations, dtype=np.float64)
        wanted = self.least + self.slope * 10.0 * seen[:, 0] + self.burst * seen[:, 1]
        return np.clip(np.round(wanted), 0, SPEEDS - 1).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Server:
    """State: how many wait, burst or not."""

    calm: float
    busy: float
    switch: float
    policies: Mapping[str, Policy]
    num_actions: int = SPEEDS

    def start(self, num: int, rng: np.random.Generator) -> Array:
        return np.stack([rng.integers(0, 10, num), rng.integers(0, 2, num)], axis=1)

    def observe(self, state: Array) -> NDArray[np.float32]:
        return np.stack([state[:, 0] / 10.0, state[:, 1]], axis=1).astype(np.float32)

    def step(
        self, state: Array, actions: Array, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], Array, NDArray[np.bool_]]:
        waiting, burst = state.T
        served = np.minimum(waiting, rng.poisson(actions.astype(np.float64)))
        come = waiting - served + rng.poisson(np.where(burst == 1, self.busy, self.calm))
        left = np.minimum(come, ROOM)
        rewards = 0.6 * served - 0.04 * waiting - 0.12 * actions**1.5 - 1.0 * (come - left)
        flipped = np.where(rng.random(len(state)) < self.switch, 1 - burst, burst)
        return rewards, np.stack([left, flipped], axis=1), np.zeros(len(state), dtype=bool)


def make(seed: int) -> Server:
    rng = np.random.default_rng([10, seed])
    ladder = {
        "poor": Speed(1.0, 0.02, 0.0),
        "medium": Speed(0.8, 0.12, 0.0),
        "good": Speed(0.6, 0.25, 0.8),
        "other": Speed(2.0, 0.0, 1.5),
    }
    return Server(float(rng.uniform(0.6, 1.2)), float(rng.uniform(2.2, 3.2)), 0.06, ladder)


FAMILY = Family(
    name="queue", make=make,
    length=80, noise=0.15, episodes=(30, 60, 120, 250),
    discounts=(0.9, 0.95, 0.98, 1.0), horizons=(None, 40),
    longest=300,
)  # fmt: skip
