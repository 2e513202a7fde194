"""Two coupled oscillators without damping: energy stays for ever unless a policy takes it out or puts it in.

Reward: 1 / (1 + 2 (energy - 1)^2) + 0.3 position - 0.05 |a|^2. The world itself has no noise.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array
from bcrl_bench.proving.family import Family
from bcrl_bench.proving.world import Policy

STEP = 0.15  # seconds


def energy(state: Array, stiff: NDArray[np.float64], coupling: float) -> NDArray[np.float64]:
    """Kinetic and elastic; state: two positions, two speeds."""
    stretch = coupling * (state[:, 0] - state[:, 1]) ** 2
    return np.asarray(0.5 * (state[:, 2:] ** 2 + stiff * state[:, :2] ** 2).sum(axis=1) + 0.5 * stretch)


@dataclass(frozen=True, eq=False)
class Hold:
    """Pushes along the speed while the energy is under `aim`, against it above; `sideways` on positions."""

    strength: float
    aim: float
    sideways: float
    stiff: NDArray[np.float64]
    coupling: float
    reads: None = None

    def act(self, observations: Array) -> Array:
        seen = np.asarray(observations, dtype=np.float64)
        missing = np.tanh(self.aim - energy(seen, self.stiff, self.coupling))
        return self.strength * missing[:, None] * seen[:, 2:] - self.sideways * seen[:, :2]


@dataclass(frozen=True, eq=False)
class Oscillators:
    """Symplectic steps, so that without actions the energy neither falls nor grows."""

    stiff: NDArray[np.float64]
    coupling: float
    policies: Mapping[str, Policy]
    num_actions: None = None

    def start(self, num: int, rng: np.random.Generator) -> Array:
        return 0.6 * rng.standard_normal((num, 4))

    def observe(self, state: Array) -> Array:
        return state

    def step(
        self, state: Array, actions: Array, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], Array, NDArray[np.bool_]]:
        have = energy(state, self.stiff, self.coupling)
        rewards = 1.0 / (1.0 + 2.0 * (have - 1.0) ** 2) + 0.3 * state[:, 0] - 0.05 * (actions**2).sum(axis=1)
        place, speed = state[:, :2], state[:, 2:]
        force = -self.stiff * place - self.coupling * (place - place[:, ::-1]) + np.clip(actions, -1.0, 1.0)
        speed = speed + STEP * force
        following = np.concatenate([place + STEP * speed, speed], axis=1)
        return rewards, following, np.zeros(len(state), dtype=bool)


def make(seed: int) -> Oscillators:
    rng = np.random.default_rng([6, seed])
    stiff, coupling = rng.uniform(0.7, 1.6, 2), float(rng.uniform(0.1, 0.5))
    ladder = {
        "poor": Hold(0.02, 0.4, 0.0, stiff, coupling),
        "medium": Hold(0.2, 0.8, 0.0, stiff, coupling),
        "good": Hold(0.6, 1.0, 0.0, stiff, coupling),
        "other": Hold(0.3, 1.3, 0.3, stiff, coupling),
    }
    return Oscillators(stiff, coupling, ladder)


FAMILY = Family(
    name="oscillator", make=make,
    length=100, noise=0.25, loud=0.6, episodes=(30, 50, 100, 200),
    discounts=(0.95, 0.98, 0.99, 1.0), horizons=(None, 60),
    rollouts=1_000, longest=550,
)  # fmt: skip
