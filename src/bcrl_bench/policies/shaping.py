"""Potential shaping, for training only (Ng, Harada and Russell 1999): r + g Phi(s') - Phi(s) has the same
best policies as r.

Phi is `scale` times a measure of progress in [0, 1] that the state already holds: finger-turn, how near the
spinner's tip is to the target; humanoid, how high the head is; quadruped, how upright the torso is.
"""

import numpy as np

from bcrl.errors import BadInput
from bcrl_bench.policies.hindsight import DISTANCE, has_hindsight

FINGER_REACH = 0.4  # metres, the farthest the tip can be from the target's edge
HEAD_HEIGHT, STANDING = 21, 1.4  # index in the state; metres, the task's own height of standing
TORSO_UPRIGHT = 47  # index in the state; cosine of the tilt


def progress(task: str, state: np.ndarray) -> float:
    """How far along the task the state is, from 0 to 1."""
    domain = task.partition("-")[0]
    if has_hindsight(task):
        return 1.0 - float(np.clip(state[DISTANCE] / FINGER_REACH, 0.0, 1.0))
    if domain == "humanoid" and not task.endswith("_pure_state"):  # whose state has no head height
        return float(np.clip(state[HEAD_HEIGHT] / STANDING, 0.0, 1.0))
    if domain == "quadruped":
        return 0.5 * (1.0 + float(state[TORSO_UPRIGHT]))
    raise BadInput(f"shaping knows finger-turn, humanoid and quadruped; got {task}. Set shaping=0.")


def shaped(
    task: str,
    scale: float,
    discount: float,
    step: tuple[np.ndarray, float, np.ndarray],
    terminated: bool,
) -> float:
    """The reward of one step (s, r, s') with the potential's difference added; nothing is left where the
    world ended.
    """
    state, reward, after = step
    if scale == 0.0:
        return reward
    ahead = 0.0 if terminated else discount * progress(task, after)
    return reward + scale * (ahead - progress(task, state))
