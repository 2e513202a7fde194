"""Gymnasium's Reacher: bring the tip of a two-link arm to a random target; no end.

Poor to good: checkpoints of one SAC run. Other: a spring from tip to target through the arm's Jacobian.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl_bench.proving.controllers import Controller, arm_torques, ladder_of, stepped_family, stepped_files
from bcrl_bench.proving.gym_worlds import gym_copies


def spring(seen: NDArray[Any]) -> NDArray[Any]:
    """Observations: cosines and sines of both angles, the target, both speeds, tip minus target."""
    angles = np.arctan2(seen[:, 2:4], seen[:, 0:2])
    return np.clip(10.0 * arm_torques(angles, (0.1, 0.11), -seen[:, 8:10]) - 0.02 * seen[:, 6:8], -1.0, 1.0)


FAMILY = stepped_family(
    "reacher", gym_copies("Reacher-v5"), lambda: ladder_of("reacher", Controller(spring)),
    stepped_files("gym_worlds", "reacher"), length=50, noise=0.1, episodes=(50, 100, 250),
    discounts=(0.9, 0.95, 1.0), horizons=(None, 50), cases=24, rollouts=500, longest=150, batch=500,
)  # fmt: skip
