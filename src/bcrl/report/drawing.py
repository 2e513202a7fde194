"""Drawings: series of numbers as SVG paths in a square of 1000 x 1000.

The page stretches the square to any width without thickening its lines, and writes the axes' labels as
ordinary text. So one drawing is crisp on a phone, on a wide screen and on paper, and needs no script.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bcrl.estimate import FloatArray
from bcrl.report.axes import Axis

SIZE = 1000
_POINTS = 240


@dataclass(frozen=True)
class Line:
    """One series: its drawing, and the numbers behind it for the pointer.

    Attributes:
        name: text in the legend.
        path: SVG path data.
        x: numbers along, thinned.
        y: numbers up, thinned.
        slot: position in the palette; -1 for the quiet colour of things that are only a background.
        filled: the area below is painted.
    """

    name: str
    path: str
    x: FloatArray
    y: FloatArray
    slot: int = 0
    filled: bool = False


@dataclass(frozen=True)
class Figure:
    """A drawing with its axes, a title and one sentence that says what to see in it."""

    title: str
    note: str
    x_label: str
    y_label: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    rules: tuple[tuple[float, str], ...] = ()


def thin(values: FloatArray, limit: int = _POINTS) -> NDArray[np.int64]:
    """Indices of at most `limit` points that keep both ends and the extremes of every stretch between."""
    if len(values) <= limit:
        return np.arange(len(values), dtype=np.int64)
    kept = {0, len(values) - 1}
    for stretch in np.array_split(np.arange(len(values)), limit // 2 - 1):
        part = np.where(np.isfinite(values[stretch]), values[stretch], 0.0)
        kept |= {int(stretch[np.argmin(part)]), int(stretch[np.argmax(part)])}
    return np.asarray(sorted(kept), dtype=np.int64)


def line(name: str, x: ArrayLike, y: ArrayLike, axes: tuple[Axis, Axis], slot: int) -> Line:
    """A series as straight stretches from point to point, broken where a number is not finite."""
    along, up = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    kept = thin(up)
    along, up = along[kept], up[kept]
    places = zip(axes[0].place(along), axes[1].place(up), strict=True)
    path, pen = [], "M"
    for across, height in places:
        if not np.isfinite(height):
            pen = "M"
            continue
        path.append(f"{pen}{across * SIZE:.1f} {(1 - _clip(height)) * SIZE:.1f}")
        pen = "L"
    return Line(name, "".join(path), along, up, slot)


def steps(name: str, edges: FloatArray, heights: FloatArray, axes: tuple[Axis, Axis], slot: int) -> Line:
    """A histogram over bins between `edges` (log-spaced), as filled steps."""
    across = axes[0].place(edges) * SIZE
    up = (1 - axes[1].place(heights)) * SIZE
    parts = [f"M{across[0]:.1f} {SIZE}"]
    for left, right, top in zip(across[:-1], across[1:], up, strict=True):
        parts.append(f"L{left:.1f} {top:.1f}L{right:.1f} {top:.1f}")
    path = "".join([*parts, f"L{across[-1]:.1f} {SIZE}"])
    return Line(name, path, np.sqrt(edges[:-1]) * np.sqrt(edges[1:]), heights, slot, filled=True)


def _clip(height: float) -> float:
    """A series that leaves the axis is cut a little outside of the picture, which hides what lies beyond."""
    return min(max(float(height), -0.5), 1.5)
