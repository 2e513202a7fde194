"""Dots with intervals on one shared axis, robust against numbers that blew up.

The axis is made for the values that may be believed, the logged policy and the truth. A value far outside it
is drawn as an arrow at the edge, because otherwise all the other values would shrink into one dot.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from bcrl.estimate import Estimate, Interval
from bcrl.report.axes import Axis, axis

_REACH = 1.5


@dataclass(frozen=True)
class Span:
    """Where a dot and its interval lie, in percent of the axis, cut at its ends.

    Attributes:
        dot: position of the value; None when it is not finite.
        start: left end of the interval; None without one.
        width: length of the interval.
        beyond: "low" or "high" when the value itself is off the axis, "" otherwise.
        cut_low: the interval goes on to the left of the axis.
        cut_high: the interval goes on to the right of it.
    """

    dot: float | None
    start: float | None = None
    width: float = 0.0
    beyond: str = ""
    cut_low: bool = False
    cut_high: bool = False


def in_sight(estimate: Estimate) -> bool:
    """Whether the axis must show a value: a believed one, or one that is known to within the scale."""
    if estimate.verdict != "distrust":
        return True
    return estimate.budget is not None and estimate.budget.width(estimate.value) <= 1.0


def shared_axis(
    core: Iterable[float | None], ends: Iterable[float | None], rest: Iterable[float | None] = ()
) -> Axis:
    """An axis that shows all of `core`, and of `ends` and then `rest` what lies near enough.

    Args:
        core: values that must be seen (believed values, the logged policy, the truth).
        ends: ends of their intervals.
        rest: values and ends that nobody should believe.
    """
    must = _finite(core) or _finite(ends) or _finite(rest) or [0.0]
    low, high = min(must), max(must)
    for more in (_finite(ends), _finite(rest)):
        reach = _REACH * (high - low) if high > low else math.inf
        near = [value for value in more if low - reach <= value <= high + reach]
        low, high = min([low, *near]), max([high, *near])
    pad = 0.04 * (high - low)
    return axis(low - pad, high + pad, count=6)


def span(value: float, interval: Interval | None, on: Axis) -> Span:
    """A value and its interval on a shared axis."""
    place = float(on.place(value)) if math.isfinite(value) else math.copysign(2.0, value)
    beyond = "low" if place < 0 else "high" if place > 1 else ""
    dot = None if math.isnan(value) else 100 * min(max(place, 0.0), 1.0)
    if interval is None or math.isnan(interval.low) or math.isnan(interval.high):
        return Span(dot, beyond=beyond)
    low, high = (_place(end, on) for end in (interval.low, interval.high))
    start, end = min(max(low, 0.0), 1.0), min(max(high, 0.0), 1.0)
    return Span(dot, 100 * start, 100 * (end - start), beyond, cut_low=low < 0, cut_high=high > 1)


def _place(end: float, on: Axis) -> float:
    return float(on.place(end)) if math.isfinite(end) else math.copysign(2.0, end)


def _finite(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]
