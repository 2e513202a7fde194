"""Gymnasium's CartPole: 1 a step until the pole falls or the cart leaves; no time limit here.

Poor to good: the sign of a linear rule whose gains are ever better. Other: a rule that looks half a second
ahead.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl_bench.proving.controllers import Controller, Ladder, rungs, stepped_family, stepped_files
from bcrl_bench.proving.gym_worlds import gym_copies


def linear(*gains: float) -> Controller:
    """Push right where the weighted place, speed, angle and turning speed are positive."""
    return Controller(lambda seen: (seen @ np.array(gains) > 0.0).astype(np.int64))


def ahead(seen: NDArray[Any]) -> NDArray[Any]:
    """Push under where the pole will lean, and more so where the cart is about to leave."""
    leaning, place = seen[:, 2] + 0.2 * seen[:, 3], seen[:, 0] + 0.5 * seen[:, 1]
    return (leaning + 0.15 * np.tanh(place) > 0.0).astype(np.int64)


def ladder() -> Ladder:
    """Poor to good, and other."""
    poor, medium = linear(0.0, 0.0, 1.0, 0.0), linear(-0.2, -0.2, 1.0, 0.3)
    return rungs(poor, medium, good=linear(0.1, 0.3, 1.0, 1.0), other=Controller(ahead))


FAMILY = stepped_family(
    "cartpole", gym_copies("CartPole-v1"), ladder, stepped_files("gym_worlds"), num_actions=2,
    # noise: few enough that the logging policy itself counts as covered
    length=200, noise=0.08, episodes=(20, 50, 100), discounts=(0.98, 0.99, 1.0), horizons=(None, 150),
    cases=24, rollouts=500, longest=600, batch=500,
)  # fmt: skip
