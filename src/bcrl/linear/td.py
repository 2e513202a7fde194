"""TD errors: how far the next state's value and the reward are from what was promised."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.estimate import FloatArray


def td_errors(
    rewards: NDArray[Any],
    terminated: NDArray[np.bool_],
    q: NDArray[Any],
    next_v: NDArray[Any],
    discount: float,
) -> FloatArray:
    """r + discount (1 - terminated) V(s') - Q(s, a) of each transition, shape (n,).

    Args:
        rewards: r, shape (n,).
        terminated: whether the world ended, so that s' has no value; shape (n,).
        q: Q(s, a), shape (n,).
        next_v: V(s'), shape (n,); read only where the world went on.
        discount: of the value.
    """
    return np.asarray(rewards + discount * np.where(terminated, 0.0, next_v) - q, dtype=np.float64)
