"""Gymnasium's Acrobot: swing the tip over a line; -1 a step until then.

Poor to good: torque against the first link's swing, with an ever smaller error of phase. Other: torque along
the second link's speed.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl_bench.proving.controllers import Controller, Ladder, rungs, stepped_family, stepped_files
from bcrl_bench.proving.gym_worlds import gym_copies

SINE, SPEED, SECOND_SPEED = 1, 4, 5  # of the numbers seen: sine of the first angle, speeds of both


def push(way: Callable[[NDArray[Any]], NDArray[Any]]) -> Controller:
    """Torque of -1, 0 or 1 (choices 0, 1, 2) by the sign of a number."""
    return Controller(lambda seen: 1 + np.sign(way(seen)).astype(np.int64))


def ladder() -> Ladder:
    """Poor to good, and other."""
    return rungs(
        push(lambda seen: -seen[:, SPEED] - 0.5),
        push(lambda seen: -seen[:, SPEED] - 2.0 * seen[:, SINE]),
        push(lambda seen: -seen[:, SPEED]),
        push(lambda seen: seen[:, SECOND_SPEED]),
    )


FAMILY = stepped_family(
    "acrobot", gym_copies("Acrobot-v1"), ladder, stepped_files("gym_worlds"), num_actions=3,
    # noise: few enough that the logging policy itself counts as covered
    length=200, noise=0.07, episodes=(30, 60, 100), discounts=(0.98, 0.99, 1.0), horizons=(None, 150),
    cases=24, rollouts=300, longest=600, batch=300,
)  # fmt: skip
