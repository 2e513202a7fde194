"""Numbers in, figure out: the few kinds of plot that the paper's figures are made of."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import image, ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bcrl_bench.experiments.protocol import Summary

# A method has one colour in all figures (Okabe and Ito's, which colour-blind readers can tell apart).
COLOURS = {
    "bcrl": "#0072B2",
    "spr": "#E69F00",
    "curl": "#009E73",
    "random": "#CC79A7",
    "fqe": "#D55E00",
    "dr": "#56B4E9",
    "dice": "#F0E442",
    "flow-dice": "#B8A900",
    "model": "#999999",
    "mean": "#444444",
    "bcrl-default": "#003F5E",
    "bcrl-mixture": "#0072B2",
    "bcrl-plain": "#0072B2",
    "bcrl-no-design": "#D55E00",
    "bcrl-design-only": "#E69F00",
}
WIDTH, HEIGHT = 3.2, 2.6  # inches of a panel


@dataclass(frozen=True)
class Line:
    """Several seeds of one curve on common points; the middle is their median, the band their range."""

    name: str
    x: NDArray[np.float64]
    seeds: Sequence[NDArray[np.float64]]


def colour(name: str) -> str:
    """Of a method."""
    return COLOURS.get(name, "#000000")


def panels(count: int, columns: int = 4) -> tuple[Figure, list[Axes]]:
    """A figure with this many panels."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(WIDTH * columns + 0.4, HEIGHT * rows + 0.4), layout="constrained")
    axes = [figure.add_subplot(rows, columns, number + 1) for number in range(count)]
    return figure, axes


def bars(axes: Axes, numbers: Mapping[str, Summary], label: str) -> None:
    """One bar a method with its interval over seeds; above it how many of its cells diverged, if any did."""
    means = [number.mean for number in numbers.values()]
    # One blow-up would flatten all the others. A bar says nothing without zero, so a log axis has points.
    log = min(means, default=0.0) > 0 and max(means) > 8 * min(means)
    for place, (name, number) in enumerate(numbers.items()):
        if log:
            axes.plot(place, number.mean, "o", color=colour(name))
        else:
            axes.bar(place, number.mean, color=colour(name), width=0.7)
        top = number.mean
        if number.low is not None and number.high is not None:
            reach, top = [[number.mean - number.low], [number.high - number.mean]], number.high
            hue = colour(name) if log else "black"
            axes.errorbar(place, number.mean, yerr=reach, color=hue, capsize=3, linewidth=1)
        if number.diverged:
            text, above = f"{number.diverged} div.", (0, 3)
            axes.annotate(
                text, (place, max(top, 0.0)), above, textcoords="offset points", ha="center", fontsize=6
            )
    if log:
        axes.set_yscale("log")
        axes.set_ylim(bottom=min(means) / 3)  # an interval that reaches zero or less has no lower end here
        log_axis(axes)
    axes.set_xticks(range(len(numbers)), list(numbers), rotation=45, ha="right", fontsize=8)
    axes.set_ylabel(label, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def lines(axes: Axes, series: Sequence[Line], *, log: bool = False, legend: bool = True) -> None:
    """Median over seeds, the range as a band."""
    for one in series:
        stack = np.array(one.seeds, dtype=np.float64)
        axes.plot(one.x, np.nanmedian(stack, axis=0), color=colour(one.name), label=one.name, linewidth=1.5)
        if len(stack) > 1:
            low, high = np.nanmin(stack, axis=0), np.nanmax(stack, axis=0)
            axes.fill_between(one.x, low, high, color=colour(one.name), alpha=0.2, linewidth=0)
    if log:
        log_axis(axes)
    if legend:
        axes.legend(fontsize=7, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=7)


def log_axis(axes: Axes) -> None:
    """A log axis whose ticks are plain numbers (1, 2, 5, 10; closer where it spans little) as long as they
    fit. Where nothing is positive, as after runs too short to be watched, the axis stays as it is.
    """
    if not any((np.asarray(line.get_ydata(), dtype=np.float64) > 0.0).any() for line in axes.lines):
        return
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high < 1e3 * low:
        close = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0) if high < 8 * low else (1.0, 2.0, 5.0)
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=close))
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(ticker.NullFormatter())


def pictures(frames: Mapping[str, str]) -> Figure:
    """Frames (base64 PNG) side by side with their names."""
    figure, axes = panels(len(frames))
    for panel, (name, text) in zip(axes, frames.items(), strict=True):
        content = base64.b64decode(text.rpartition(",")[2])
        panel.imshow(image.imread(io.BytesIO(content), format="png"))
        panel.set_title(name, fontsize=9)
        panel.set_axis_off()
    return figure


def save(figure: Figure, path: Path) -> None:
    """PNG and PDF, the same bytes for the same numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path.with_suffix(".png"), dpi=150, metadata={"Software": None})
    figure.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None})
