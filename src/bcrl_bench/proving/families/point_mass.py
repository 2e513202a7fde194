"""dm_control's point_mass-easy: bring a mass to the middle of the plane, about 1 a control step there.

Poor to good: a spring with a damper, ever stiffer. Other: full force against place and speed, axis by axis.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl_bench.proving.control_worlds import control_copies
from bcrl_bench.proving.controllers import Controller, rungs, stepped_family, stepped_files


def spring(stiffness: float, damping: float) -> Controller:
    """Force against the place (the first two numbers seen) and the speed (the last two)."""
    return Controller(lambda seen: np.clip(-stiffness * seen[:, :2] - damping * seen[:, 2:], -1.0, 1.0))


def full(seen: NDArray[Any]) -> NDArray[Any]:
    """Nearly full force, turned round early enough to stop in the middle."""
    return 0.8 * np.tanh(-60.0 * (seen[:, :2] + 0.5 * seen[:, 2:]))


FAMILY = stepped_family(
    "point_mass", control_copies("point_mass-easy"),
    lambda: rungs(spring(10.0, 10.0), spring(30.0, 20.0), spring(100.0, 30.0), other=Controller(full)),
    stepped_files("control_worlds"), length=200, noise=0.3, episodes=(30, 60, 100),
    discounts=(0.99, 1.0), horizons=(None, 150), cases=24, rollouts=300, longest=600, batch=300,
)  # fmt: skip
