"""A second training where the first did not settle.

Where the log lacks the policy's actions, features are free to grow there, and with them the value: it wanders for as long as
training lasts. Layer norm bounds features far from the data and costs accuracy elsewhere (results/recipes.md), so it is taken
only where the value's own restlessness asks for it. Nothing here reads the truth.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from bcrl.representations.fitted import FittedFeatures

# Curves of the training that was left.
FIRST_TRY, FIRST_STEPS = "first_try/value", "first_try/step"
_ENOUGH = 4  # evaluations; fewer show no drift


def drift(values: Sequence[float]) -> float:
    """How far the value moved over the last half of training, relative to its end; nan where it was never taken, inf where it
    was lost on the way.
    """
    last = np.asarray(values[len(values) // 2 :], dtype=np.float64)
    if len(last) < 2:
        return math.nan
    if not np.isfinite(last).all():
        return math.inf
    return float(np.abs(last - last[-1]).max() / max(abs(last[-1]), 1e-12))


def steadier(first: FittedFeatures, again: Callable[[], FittedFeatures], limit: float) -> FittedFeatures:
    """`first`, or where its value moved by more than `limit` the steadier of it and a second training."""
    values = first.metrics.get("value", [])
    if len(values) < _ENOUGH or drift(values) <= limit:
        return first
    second = again()
    if not drift(second.metrics["value"]) < drift(values):
        return first
    left = {FIRST_TRY: values, FIRST_STEPS: first.metrics["step"]}
    return FittedFeatures(second.net, second.metrics | left)
