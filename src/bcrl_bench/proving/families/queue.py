"""A queue whose server is paid by its speed: bursts of arrivals, five speeds, a waiting room of forty.

Seen: how many wait, and whether it is a burst. Reward: 0.6 for each served, less 0.04 for each that waits,
0.12 speed^1.5, and 1 for each turned away.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array
from bcrl_bench.proving.controllers import Controller
from bcrl_bench.proving.family import Family
from bcrl_bench.proving.world import Policy

SPEEDS, ROOM = 5, 40


def speed(least: float, slope: float, burst: float) -> Controller:
    """Grows with the number of those who wait; `burst` is added in a burst."""

    def act(seen: Array) -> Array:
        waiting, bursting = seen.astype(np.float64).T
        wanted = np.round(least + slope * 10.0 * waiting + burst * bursting)
        return np.asarray(np.clip(wanted, 0, SPEEDS - 1).astype(np.int64))

    return Controller(act)


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
        "poor": speed(1.0, 0.02, 0.0),
        "medium": speed(0.8, 0.12, 0.0),
        "good": speed(0.6, 0.25, 0.8),
        "other": speed(2.0, 0.0, 1.5),
    }
    return Server(float(rng.uniform(0.6, 1.2)), float(rng.uniform(2.2, 3.2)), 0.06, ladder)


FAMILY = Family(
    name="queue", make=make, files=("../controllers.py",),
    length=80, noise=0.15, episodes=(30, 60, 120, 250),
    discounts=(0.9, 0.95, 0.98, 1.0), horizons=(None, 40),
    longest=300,
)  # fmt: skip
