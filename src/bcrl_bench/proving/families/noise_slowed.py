"""A mover that noise slows down: it swims by keeping two fins in step with its phase, and every deviation
from the right stroke costs thrust. So a policy without its noise is faster than anything in the log.

    thrust = exp(-|a - stroke(phase)|^2 / 0.25),   v' = 0.9 v + 0.1 thrust + noise,   reward = v
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array
from bcrl_bench.proving.controllers import Controller
from bcrl_bench.proving.family import Family
from bcrl_bench.proving.world import Policy

WIDTH, TURN = 0.25, 0.4


def a_share(share: float, late: float, swing: float) -> Controller:
    """A share of the right stroke, `late` radians behind it."""

    def act(seen: Array) -> Array:
        across, up = seen[:, :2].astype(np.float64).T
        return share * stroke(np.arctan2(up, across) - late, swing)

    return Controller(act)


def stroke(phase: NDArray[np.float64], swing: float) -> NDArray[np.float64]:
    """The right action of both fins."""
    return np.stack([0.6 * np.sin(phase), 0.6 * np.sin(phase + swing)], axis=1)


@dataclass(frozen=True, eq=False)
class Mover:
    """State: phase, speed. Seen: cosine and sine of the phase, speed."""

    swing: float
    turn: float
    policies: Mapping[str, Policy] = field(default_factory=dict)
    num_actions: None = None

    def start(self, num: int, rng: np.random.Generator) -> Array:
        return np.stack([rng.uniform(0.0, 2.0 * np.pi, num), np.abs(0.05 * rng.standard_normal(num))], axis=1)

    def observe(self, state: Array) -> Array:
        return np.stack([np.cos(state[:, 0]), np.sin(state[:, 0]), state[:, 1]], axis=1)

    def step(
        self, state: Array, actions: Array, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], Array, NDArray[np.bool_]]:
        phase, speed = state[:, 0], state[:, 1]
        off = ((actions - stroke(phase, self.swing)) ** 2).sum(axis=1)
        onward = 0.9 * speed + 0.1 * np.exp(-off / WIDTH) + 0.005 * rng.standard_normal(len(state))
        following = np.stack([(phase + self.turn * (1.0 + 0.2 * speed)) % (2.0 * np.pi), onward], axis=1)
        return speed, following, np.zeros(len(state), dtype=bool)


def make(seed: int) -> Mover:
    rng = np.random.default_rng([5, seed])
    swing, turn = float(rng.uniform(0.8, 2.0)), float(rng.uniform(0.3, 0.5))
    ladder = {
        "poor": a_share(0.2, 0.9, swing),
        "medium": a_share(0.75, 0.3, swing),
        "good": a_share(1.0, 0.0, swing),
        "other": a_share(1.2, -0.5, swing),
    }
    return Mover(swing, turn, ladder)


FAMILY = Family(
    name="noise_slowed", make=make, files=("../controllers.py",),
    length=100, noise=0.35, loud=0.7, episodes=(30, 50, 100, 200),
    discounts=(0.95, 0.97, 0.98), horizons=(None, 80),
    rollouts=500, longest=300,
)  # fmt: skip
