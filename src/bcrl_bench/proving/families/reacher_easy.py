"""dm_control's reacher-easy: keep the tip of a two-link arm within a random target; 1 there, 0 elsewhere.

Poor to good: checkpoints of one SAC run. Other: a spring from tip to target through the arm's Jacobian.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl_bench.proving.control_worlds import control_copies
from bcrl_bench.proving.controllers import Controller, arm_torques, ladder_of, stepped_family, stepped_files


def spring(seen: NDArray[Any]) -> NDArray[Any]:
    """Observations: both angles, the way from tip to target, both speeds."""
    return np.clip(
        200.0 * arm_torques(seen[:, :2], (0.12, 0.12), seen[:, 2:4]) - 0.3 * seen[:, 4:6], -1.0, 1.0
    )


FAMILY = stepped_family(  # the target is drawn at every start
    "reacher_easy", control_copies("reacher-easy"), lambda: ladder_of("reacher_easy", Controller(spring)),
    stepped_files("control_worlds", "reacher_easy"), length=150, noise=0.2, episodes=(40, 80, 130),
    discounts=(0.95, 0.97, 1.0), horizons=(None, 100), cases=24, rollouts=300, longest=200, batch=300,
)  # fmt: skip
