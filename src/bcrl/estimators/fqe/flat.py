"""When the value has stopped moving: training goes on until then."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bcrl.estimate import Status, short_call
from bcrl.estimators.fqe.network import Scale
from bcrl.options import Checked, Count, CountOrZero, NotNegative

# A value this many times beyond the largest possible one will not come back.
_BLOWN_UP = 5.0


@dataclass(frozen=True)
class Flat(Checked):
    """What counts as a flat value curve.

    Attributes:
        tolerance: the value is flat if it moved by at most this share of itself (`relative_drift`).
        least_steps: the value is never called flat before this step.
        check_every: steps between two points of the value curve.
        stop: end training when the value is flat; False takes all steps and only says whether it was flat.
    """

    tolerance: NotNegative = 0.01
    least_steps: CountOrZero = 4_000
    check_every: Count = 250
    stop: bool = True

    __repr__ = short_call

    def judge(self, history: Mapping[str, Sequence[float]], scale: Scale, steps: int) -> tuple[Status, float]:
        """The state of training at its last check, and how far the value still moves.

        Args:
            history: curves "step", "value" and, without a horizon, "constant_error".
            scale: the reward's unit.
            steps: the largest number of steps.
        """
        value = history["value"][-1]
        drift = relative_drift(history["value"], history.get("constant_error"), 1e-2 * scale.limit)
        if not math.isfinite(value) or abs(value) > _BLOWN_UP * scale.limit + 1e-12:
            return Status.DIVERGED, drift
        if history["step"][-1] < min(self.least_steps, steps) or drift > self.tolerance:
            return Status.LIMIT, drift
        return Status.CONVERGED if scale.horizon is None else Status.HORIZON, drift


def relative_drift(values: Sequence[float], constants: Sequence[float] | None, floor: float) -> float:
    """How far the value still moves, as a share of it: over the last two quarters, or by its constant error.

    The quarters grow with the curve, so that a slow approach cannot pass for a flat one: of a curve that
    still rises linearly from 0 the last quarter is always more than a quarter above the one before. A curve
    that began near its end is caught by the constant error that is still to come.

    Args:
        values: the value at every check.
        constants: the constant error of Q at every check; None where there is none.
        floor: the smallest size of the value to compare with.
    """
    quarter = len(values) // 4
    if quarter < 1:
        return math.inf
    last = float(np.mean(values[-quarter:]))
    moved = abs(last - float(np.mean(values[-2 * quarter : -quarter])))
    to_come = 0.0 if constants is None else abs(float(np.mean(constants[-quarter:])))
    return max(moved, to_come) / max(abs(last), floor, 1e-12)
