"""Gymnasium's LunarLander with four choices: land softly between the flags; ends on a crash or at rest.

Poor to good: the controller that Gymnasium ships as a demonstration, which at first brakes too little. Other:
thresholds on the falling speed and on the tilt.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl_bench.proving.controllers import Controller, rungs, stepped_family, stepped_files
from bcrl_bench.proving.gym_worlds import gym_copies

NOTHING, LEFT, MAIN, RIGHT = range(4)  # the engines


def damped(braking: float) -> Controller:
    """Aim at a tilt that brings it back and at a height by distance; `braking`: of the falling speed."""

    def rule(seen: NDArray[Any]) -> NDArray[Any]:
        x, y, x_speed, y_speed, angle, turning, one_leg, other_leg = seen.T
        down = (one_leg + other_leg) > 0.0
        tilt = 0.5 * (np.clip(0.5 * x + x_speed, -0.4, 0.4) - angle) - turning
        rise = 0.5 * (0.55 * np.abs(x) - y) - braking * y_speed
        tilt, rise = np.where(down, 0.0, tilt), np.where(down, -0.5 * y_speed, rise)
        turn = np.where(tilt < -0.05, RIGHT, np.where(tilt > 0.05, LEFT, NOTHING))
        return np.where((rise > np.abs(tilt)) & (rise > 0.05), MAIN, turn)

    return Controller(rule)


def thresholds(seen: NDArray[Any]) -> NDArray[Any]:
    """Brake when falling faster than the height allows, else turn against tilt and drift."""
    x, y, x_speed, y_speed, angle, turning, one_leg, other_leg = seen.T
    lean = angle + 0.5 * turning - 0.3 * x_speed - 0.2 * x
    turn = np.where(lean > 0.1, RIGHT, np.where(lean < -0.1, LEFT, NOTHING))
    flying = np.where(y_speed < -0.1 - 0.5 * np.clip(y, 0.0, 1.0), MAIN, turn)
    return np.where(one_leg + other_leg > 0.0, np.where(y_speed < -0.1, MAIN, NOTHING), flying)


FAMILY = stepped_family(
    "lunar_lander", gym_copies("LunarLander-v3"),
    lambda: rungs(damped(0.25), damped(0.35), damped(0.8), other=Controller(thresholds)),
    stepped_files("gym_worlds"), num_actions=4,
    # noise: few enough that the logging policy itself counts as covered
    length=400, noise=0.06, episodes=(20, 35, 50), discounts=(0.98, 0.99),
    cases=24, rollouts=500, longest=600, batch=500,
)  # fmt: skip
