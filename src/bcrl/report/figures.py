"""The page's figures: numbers in, a drawing out, with one sentence that says what to see in it."""

from collections.abc import Mapping, Sequence

import numpy as np

from bcrl.estimate import FloatArray
from bcrl.report.axes import Axis, Scale, axis
from bcrl.report.drawing import Figure, line, steps
from bcrl.report.words import number, percent

_BLOW_UP = 100.0
_BINS = 36


def lspe_curve(
    values: Sequence[float],
    spectral_radius: float | None = None,
    truth: float | None = None,
    iterations: float | None = None,
) -> Figure:
    """Value after each iteration, on a signed log axis when it blows up; `iterations` of a thinned curve."""
    finite = _finite(values)
    blown = len(finite) < len(values) or _blows_up(finite)
    marks = [] if truth is None or blown else [truth]
    shown = np.asarray([*finite, *marks])
    headroom = [float(shown.max() + 0.14 * np.ptp(shown))] if marks else []
    vertical = _vertical([shown, np.asarray(headroom)], "signed log" if blown else "linear")
    along = _spread(1.0, len(values), iterations)
    horizontal = axis(1.0, float(max(along[-1], 2.0)), whole=True)
    return Figure(
        title="LSPE curve",
        note=_radius_note(spectral_radius, blown),
        x_label="iteration",
        y_label="value, signed log axis" if blown else "value",
        x=horizontal,
        y=vertical,
        lines=(line("value", along, values, (horizontal, vertical), 0),),
        rules=_rules(vertical, marks, "truth"),
    )


def singular_values(values: Sequence[float]) -> Figure:
    """Singular values of the feature covariance, largest first, on a log axis."""
    ordered = np.sort(_finite(values))[::-1]
    positive = ordered[ordered > 0]
    top = float(positive[0]) if len(positive) else 1.0
    low = max(float(positive[-1]) if len(positive) else top, top * 1e-16)
    vertical = axis(low, top * 1.3, "log", count=4)
    horizontal = axis(1.0, float(max(len(ordered), 2)), whole=True)
    lines = (
        line(
            "singular value", 1 + np.arange(len(ordered)), np.maximum(ordered, low), (horizontal, vertical), 0
        ),
    )
    beyond = "above " if len(positive) and positive[-1] < low else ""
    note = (
        f"{len(ordered)} directions, condition number {beyond}{number(top / low)}: "
        "the closer the values are to each other, the less an error grows."
    )
    if len(positive) < len(ordered):
        note = f"{len(ordered) - len(positive)} of {len(ordered)} directions are not in the data at all."
    return Figure(
        "Singular values", note, "direction", "singular value, log axis", horizontal, vertical, lines
    )


def coverage(data: Sequence[float], policy: Sequence[float]) -> Figure:
    """Leverage of the data’s own state-actions and of the policy's: far to the right, few data are near."""
    logged, target = _finite(data), _finite(policy)
    everything = np.concatenate([logged, target])
    positive = everything[everything > 0]
    low, high = np.quantile(positive, [0.001, 1.0]) if len(positive) else (0.1, 1.0)
    edges = np.geomspace(low * 0.98, high * 1.02, _BINS + 1)
    shares = [_shares(part, edges) for part in (logged, target)]
    horizontal = axis(float(edges[0]), float(edges[-1]), "log")
    vertical = axis(0.0, 100 * max(float(share.max()) for share in shares) * 1.08, count=4)
    lines = tuple(
        steps(name, edges, 100 * share, (horizontal, vertical), slot)
        for name, share, slot in (("data", shares[0], -1), ("policy", shares[1], 0))
    )
    beyond = float(np.mean(target > np.quantile(logged, 0.99)))
    note = (
        f"{percent(beyond)} of the policy’s state-actions lie beyond the data’s own 99% quantile; "
        "1% would be full coverage."
    )
    return Figure("Coverage", note, "leverage, log axis", "share, %", horizontal, vertical, lines)


def over_time(series: Mapping[str, Sequence[float]], steps: float | None = None) -> Figure:
    """Value from each step of the episode on, one line per method; `steps` of a thinned curve."""
    parts = [_finite(values) for values in series.values()]
    calm = [part for part in parts if len(part) and not _blows_up(part)] or parts
    vertical = _vertical(calm, "linear")
    along = {name: _spread(0.0, len(values), steps) for name, values in series.items() if len(values)}
    horizontal = axis(0.0, float(max(1.0, *(places[-1] for places in along.values()))), whole=True)
    lines = tuple(
        line(name, along[name], values, (horizontal, vertical), slot)
        for slot, (name, values) in enumerate(series.items())
        if name in along
    )
    return Figure("Value from here on", "", "step in the episode", "", horizontal, vertical, lines)


def effective_sample_size(values: Sequence[float], steps: float | None = None) -> Figure:
    """How many episodes the importance weights leave at each step of the episode."""
    along = _spread(0.0, len(values), steps)
    vertical = _vertical([_finite(values), np.zeros(1)], "linear")
    horizontal = axis(0.0, float(max(along[-1], 1.0)), whole=True)
    lines = (line("episodes", along, values, (horizontal, vertical), 0),)
    least = number(float(np.min(_finite(values), initial=np.inf)))
    note = (
        f"At the worst step the weights leave {least} effective episodes: "
        "with fewer than 5 the value rests on almost no data."
    )
    return Figure(
        "Effective sample size", note, "step in the episode", "episodes", horizontal, vertical, lines
    )


def training(name: str, values: Sequence[float], at: Sequence[float] | None = None) -> Figure:
    """One quantity during training; a log axis when it is positive and spans more than two decades."""
    finite = _finite(values)
    wide = bool(len(finite)) and finite.min() > 0 and finite.max() > 100 * finite.min()
    scale: Scale = "log" if wide else "signed log" if _blows_up(finite) else "linear"
    vertical = _vertical([finite], scale)
    along = np.arange(1, len(values) + 1) if at is None else np.asarray(at, dtype=np.float64)
    horizontal = axis(float(np.min(along)), float(max(np.max(along), np.min(along) + 1)), count=3, whole=True)
    lines = [line(name, along, values, (horizontal, vertical), 0)]
    if (calm := _running_median(values)) is not None:
        lines = [
            line("records", along, values, (horizontal, vertical), -1),
            line("running median", along, calm, (horizontal, vertical), 0),
        ]
    label = "record" if at is None else "step"
    note = "" if len(finite) == len(values) else f"{len(values) - len(finite)} records are not finite."
    unit = "" if scale == "linear" else f"{scale} axis"
    return Figure(name, note, label, unit, horizontal, vertical, tuple(lines))


def _running_median(values: Sequence[float]) -> FloatArray | None:
    """The median around each record of a noisy series; None for one that is short or smooth."""
    array = np.asarray(values, dtype=np.float64)
    width = len(array) // 20
    if width < 3 or not np.isfinite(array).all():
        return None
    padded = np.pad(array, (width // 2, width - 1 - width // 2), mode="reflect")
    calm = np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=1)
    noise, spread = np.mean(np.abs(array - calm)), np.ptp(calm)
    return calm if noise > 0.02 * spread else None


def _spread(first: float, count: int, total: float | None) -> FloatArray:
    """Places of `count` points from `first` on: one apart, or spread evenly up to a larger total."""
    end = float(count) if total is None or not total > count else float(total)
    return np.linspace(first, first + end - 1, count)


def _radius_note(radius: float | None, blown: bool) -> str:
    known = "" if radius is None else f"Spectral radius {number(radius, 3)}: "
    if blown:
        return known + "the iteration blows up, so its end is not a value."
    if radius is None:
        return "A flat end means that the value has settled."
    if radius >= 1:
        return known + "the iteration does not contract, even if the curve looks flat at its end."
    return known + f"an error shrinks to {number(100 * radius, 1)}% with every iteration."


def _rules(vertical: Axis, values: Sequence[float], label: str) -> tuple[tuple[float, str], ...]:
    return tuple((float(vertical.place(value)), f"{label} {number(value)}") for value in values)


def _finite(values: Sequence[float]) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    return array[np.isfinite(array)]


def _blows_up(finite: FloatArray) -> bool:
    if not len(finite):
        return False
    sizes = np.abs(finite)
    return bool(
        sizes.max() > _BLOW_UP and sizes.max() > _BLOW_UP * max(float(np.median(sizes)), 1e-12)
    ) or bool(sizes[-1] > 1e6 and sizes[-1] > _BLOW_UP * sizes[: max(len(sizes) // 4, 1)].max())


def _vertical(parts: Sequence[FloatArray], scale: Scale) -> Axis:
    values = np.concatenate([*parts, np.zeros(0)])
    if not len(values):
        return axis(0.0, 1.0)
    low, high = float(values.min()), float(values.max())
    if scale == "linear":
        pad = 0.06 * (high - low)
        return axis(low - pad, high + pad, count=4)
    if scale == "log":
        return axis(low / 1.1, high * 1.1, "log", count=4)
    return axis(min(low, 0.0), max(high, 0.0) * 1.5, "signed log", count=4)


def _shares(values: FloatArray, edges: FloatArray) -> FloatArray:
    counts = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]
    return np.asarray(counts / max(len(values), 1))
