"""Axes: where a number lies on a picture, as a share of its width or height, and which ticks to print."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bcrl.estimate import FloatArray
from bcrl.report.words import number, power

Scale = Literal["linear", "log", "signed log"]
# Below this width the numbers on the axis can no longer be distinguished.
_NARROWEST: dict[Scale, float] = {"linear": 1e-100, "log": 0.0, "signed log": 1e-6}
_LARGEST = 1e300
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes:
        low: number at its start.
        high: number at its end.
        scale: linear, log, or signed log (sign(x) log10(1 + |x|)) for series that blow up either way.
        ticks: positions (0 to 1) with the text beside them.
    """

    low: float
    high: float
    scale: Scale
    ticks: tuple[tuple[float, str], ...]

    def place(self, values: float | Iterable[float]) -> FloatArray:
        """Position of each value: 0 at `low`, 1 at `high`; outside of that when the value is off the axis."""
        start, end = _bend(np.asarray([self.low, self.high]), self.scale)
        given = np.asarray(values if isinstance(values, int | float) else list(values), dtype=np.float64)
        return np.asarray((_bend(given, self.scale) - start) / (end - start))


def axis(low: float, high: float, scale: Scale = "linear", *, count: int = 5, whole: bool = False) -> Axis:
    """An axis from `low` to `high` with about `count` ticks; a range of width 0 is widened around its number.

    Args:
        low: number at its start.
        high: number at its end.
        scale: linear, log or signed log.
        count: how many ticks there is room for.
        whole: ticks at whole numbers only, for things that are counted (steps, iterations).
    """
    low, high = _drawable(low), _drawable(high)
    if scale == "log":
        low, high = max(low, 1 / _LARGEST), max(high, 1 / _LARGEST)
        low, high = (low, high) if high > low * 1.001 else (low / 2, high * 2)
    elif not high - low > max(1e-9 * max(abs(low), abs(high)), _NARROWEST[scale]):
        pad = max(0.1 * abs(low), 1.0 if abs(low) < 1e-6 else 0.0, 10 * _NARROWEST[scale])
        low, high = low - pad, high + pad
    bare = Axis(low, high, scale, ())
    ticks = {"linear": _linear_ticks, "log": _log_ticks, "signed log": _signed_ticks}[scale](low, high, count)
    if whole:
        ticks = [tick for tick in ticks if tick == round(tick)]
    places = bare.place(ticks)
    labels = _labels(ticks) if scale == "linear" else _power_labels(ticks)
    inside = [(float(p), t) for p, t in zip(places, labels, strict=True) if -1e-9 <= p <= 1 + 1e-9]
    return Axis(low, high, scale, tuple(inside))


def _drawable(end: float) -> float:
    """An end of an axis whose width, and twice it, is a number."""
    return min(max(end, -_LARGEST), _LARGEST) if not math.isnan(end) else 0.0


def _bend(values: FloatArray, scale: Scale) -> FloatArray:
    if scale == "linear":
        return values
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log10(values) if scale == "log" else np.sign(values) * np.log10(1 + np.abs(values))


def _linear_ticks(low: float, high: float, count: int) -> list[float]:
    rough = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in _STEPS if s * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _labels(ticks: list[float]) -> list[str]:
    """All ticks of a linear axis with the same number of decimals."""
    if len(ticks) < 2:
        return [number(tick) for tick in ticks]
    step = ticks[1] - ticks[0]
    decimals = next(d for d in range(0, 13) if math.isclose(step, round(step, d), rel_tol=1e-6) or d == 12)
    return [number(tick, decimals) for tick in ticks]


def _power_labels(ticks: list[float]) -> list[str]:
    """Ticks of a log axis: plain numbers, or powers of ten throughout when some would be long."""
    sizes = [abs(tick) for tick in ticks if tick]
    if not sizes or (max(sizes) < 1e5 and min(sizes) >= 1e-3):
        return [number(tick) for tick in ticks]
    return [_power_label(tick) if abs(tick) >= 1000 or abs(tick) < 0.1 else number(tick) for tick in ticks]


def _power_label(tick: float) -> str:
    exponent = math.log10(abs(tick)) if tick else 0.5
    whole = round(exponent)
    return ("−" if tick < 0 else "") + power(whole) if abs(exponent - whole) < 1e-9 else number(tick)


def _log_ticks(low: float, high: float, count: int) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    if last - first <= 2:
        return [m * 10.0**k for k in range(first, last + 1) for m in (1, 2, 5) if low <= m * 10.0**k <= high]
    stride = max(1, math.ceil((last - first) / count))
    return [10.0**k for k in range(first, last + 1) if k % stride == 0]


def _signed_ticks(low: float, high: float, count: int) -> list[float]:
    largest = max(1, math.floor(math.log10(1 + max(abs(low), abs(high)))))
    sides = (low < 0) + (high > 0)
    stride = max(1, math.ceil(largest * sides / count))
    powers = [10.0**k for k in range(stride, largest + 1, stride)]
    return [-p for p in reversed(powers)] + [0.0] + powers
