"""A second training where the first did not settle.

Where the log lacks the policy's actions, features are free to grow there, and with them the value: it wanders for as long as
training lasts. Layer norm bounds features far from the data and costs accuracy elsewhere (results/recipes.md), so it is taken
only where the value's own restlessness asks for it. Nothing here reads the truth.
"""

from collections.abc import Callable

from bcrl.representations.fitted import FIRST_STEPS, FIRST_TRY, FittedFeatures, drift

_ENOUGH = 4  # evaluations; fewer show no drift


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
