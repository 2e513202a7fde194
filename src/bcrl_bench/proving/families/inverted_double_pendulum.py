"""Gymnasium's InvertedDoublePendulum: two poles on a cart, about 9 a step until they fall.

Poor to good: checkpoints of one SAC run. Other: the linear regulator of the upright position.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl_bench.proving.controllers import Controller, column, ladder_of, stepped_family, stepped_files
from bcrl_bench.proving.gym_worlds import gym_copies

# Of place, both angles and their speeds: Riccati's equation with costs 1, 10, 10, 0.1, 1, 1 and 100 of force.
GAINS = np.array([0.043, 0.303, 3.02, 0.078, 0.328, 0.433])


def regulate(seen: NDArray[Any]) -> NDArray[Any]:
    """Observations are place, two sines, two cosines, three speeds and the force that holds the cart."""
    first, second = np.arctan2(seen[:, 1], seen[:, 3]), np.arctan2(seen[:, 2], seen[:, 4])
    return column(-np.stack([seen[:, 0], first, second, *seen[:, 5:8].T], axis=1) @ GAINS)


FAMILY = stepped_family(
    "inverted_double_pendulum", gym_copies("InvertedDoublePendulum-v5"),
    lambda: ladder_of("inverted_double_pendulum", Controller(regulate)),
    stepped_files("gym_worlds", "inverted_double_pendulum"), length=150, noise=0.15, episodes=(30, 60, 120),
    discounts=(0.95, 0.98), cases=24, rollouts=300, longest=320, batch=300,
)  # fmt: skip
