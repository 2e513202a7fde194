"""Gymnasium's MountainCarContinuous: rock out of a valley; 100 at the goal, its end, and a cost of force.

Poor to good: force along the speed, ever stronger. Other: full force, one way or the other.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl_bench.proving.controllers import Controller, rungs, stepped_family, stepped_files
from bcrl_bench.proving.gym_worlds import gym_copies


def along(gain: float, most: float) -> Controller:
    """Force along the speed (the second number seen)."""
    return Controller(lambda seen: np.clip(gain * seen[:, 1:], -most, most))


def full(seen: NDArray[Any]) -> NDArray[Any]:
    """Uphill with full force when already going there, gently back down."""
    return np.where(seen[:, 1:] > 0.0, 1.0, -0.7)


FAMILY = stepped_family(
    "mountain_car", gym_copies("MountainCarContinuous-v0"),
    lambda: rungs(along(20.0, 0.5), along(60.0, 0.6), along(100.0, 1.0), other=Controller(full)),
    stepped_files("gym_worlds"), length=250, noise=0.3, episodes=(30, 50, 80), discounts=(0.98, 0.99),
    cases=24, rollouts=1_000, longest=600, batch=500,
)  # fmt: skip
