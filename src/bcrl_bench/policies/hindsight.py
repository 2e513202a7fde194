"""Hindsight for finger-turn (Andrychowicz et al. 2017): learn from an episode as if its target lay where the
spinner went.

The state of finger-turn holds the joints (0:2), the tip (2:4), velocities (4:7), touch (7:9), the target
(9:11), both relative to the hinge, and the distance from the target's edge (11); the target does not touch
the physics. Difference from the task: the reward within an agent step is read at its end only, so it is 0 or
2 where the task can pay 1.
"""

import numpy as np

from bcrl.errors import BadInput

TIP, TARGET, DISTANCE = slice(2, 4), slice(9, 11), 11


def has_hindsight(task: str) -> bool:
    """Whether episodes of this task can be relabelled."""
    return task in ("finger-turn_hard", "finger-turn_easy")


def relabel(
    task: str, states: np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray] | None:
    """States (T + 1, 12) with the target moved to where the tip went, and their rewards (T,); None if it
    stood still.
    """
    if not has_hindsight(task):
        raise BadInput(f"hindsight knows finger-turn only; got {task}. Set hindsight=0.")
    radius = np.linalg.norm(states[0, TARGET] - states[0, TIP]) - states[0, DISTANCE]
    # a target where the spinner already is teaches only to leave it alone
    away = np.flatnonzero(np.linalg.norm(states[:, TIP] - states[0, TIP], axis=1) > 2 * radius)
    if len(away) == 0:
        return None
    moved = states.copy()
    moved[:, TARGET] = states[generator.choice(away), TIP]
    moved[:, DISTANCE] = np.linalg.norm(moved[:, TARGET] - moved[:, TIP], axis=1) - radius
    return moved, 2.0 * (moved[1:, DISTANCE] <= 0)
