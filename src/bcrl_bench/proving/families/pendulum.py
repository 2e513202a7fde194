"""Gymnasium's Pendulum: swing up and stay up, a cost at every step, no end.

Poor to good: checkpoints of one SAC run. Other: energy shaping, and a PD controller near the top.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl_bench.proving.controllers import Controller, column, ladder_of, stepped_family, stepped_files
from bcrl_bench.proving.gym_worlds import gym_copies


def pump(seen: NDArray[Any]) -> NDArray[Any]:
    """Torque along the speed while energy is missing; observations are cos, sin and speed of the angle."""
    angle, speed = np.arctan2(seen[:, 1], seen[:, 0]), seen[:, 2]
    missing = 15.0 * (1.0 - seen[:, 0]) - 0.5 * speed**2  # 15 = 3 g / (2 l)
    near = np.abs(angle) < 0.5
    return column(np.where(near, -4.0 * angle - speed, 0.1 * missing * np.sign(speed)))


FAMILY = stepped_family(
    "pendulum", gym_copies("Pendulum-v1"), lambda: ladder_of("pendulum", Controller(pump)),
    stepped_files("gym_worlds", "pendulum"), length=200, noise=0.3, episodes=(20, 40, 100),
    discounts=(0.95, 0.98), cases=24, rollouts=500, longest=320, batch=500,
)  # fmt: skip
