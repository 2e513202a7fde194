"""What is below the first screen: figures, tables and pictures of a comparison; no empty boxes."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from bcrl.comparison import Comparison, Difference
from bcrl.conform import conform
from bcrl.estimate import Estimate, Status, Verdict
from bcrl.report.axes import Axis
from bcrl.report.drawing import Figure
from bcrl.report.figures import (
    coverage,
    effective_sample_size,
    lspe_curve,
    over_time,
    singular_values,
    training,
)
from bcrl.report.spans import Span, in_sight, shared_axis, span

_TRAIN = "train/"
_STEP = "train/step"


@dataclass(frozen=True)
class Panel:
    """Figures that belong to one estimate, or to a policy (method None) or to a method (policy None)."""

    figures: tuple[Figure, ...]
    policy: int | None = None
    method: int | None = None


@dataclass(frozen=True)
class DifferenceRow:
    """One method's difference between a policy and the logged policy, as it is drawn."""

    policy: int
    method: int
    verdict: Verdict
    difference: Difference
    span: Span
    honest: Span | None
    best: float | None
    episodes: int | None


def inside_panels(table: Comparison) -> list[Panel]:
    """Per estimate: the LSPE curve, the singular values, the coverage."""
    return [
        Panel(figures, policy, method)
        for policy, method, estimate in _each(table)
        if (figures := tuple(_inside(table, policy, estimate)))
    ]


def time_panels(table: Comparison) -> list[Panel]:
    """Per policy: value over the time in the episode, a line per method in the method's own colour."""
    panels = []
    for index, row in enumerate(table.estimates.values()):
        series = {name: _time_series(row.get(name)) for name in table.methods}
        if any(len(values) for values in series.values()):
            panels.append(Panel((over_time(series, _steps(table)),), policy=index))
    return panels


def training_panels(table: Comparison) -> list[Panel]:
    """Per estimate: its training curves; once per method when all policies share the training."""
    panels = []
    for method, name in enumerate(table.methods):
        rows = [(p, r[name].curves) for p, r in enumerate(table.estimates.values()) if name in r]
        curves = [{key: list(c[key]) for key in c if key.startswith(_TRAIN)} for _, c in rows]
        shared = len(curves) > 1 and all(c == curves[0] for c in curves)
        for (policy, _), found in zip(rows[:1] if shared else rows, curves, strict=False):
            if figures := tuple(_training(found)):
                panels.append(Panel(figures, None if shared else policy, method))
    return panels


def difference_rows(table: Comparison) -> tuple[Axis | None, list[DifferenceRow]]:
    """Differences to the logged policy on one axis that shows zero."""
    found = [
        (policy, method, estimate, table.differences[p][m])
        for policy, p in enumerate(table.policies)
        for method, m in enumerate(table.methods)
        if m in table.differences.get(p, {}) and (estimate := table.estimates[p].get(m)) is not None
    ]
    found = [row for row in found if math.isfinite(row[3].value)]
    if not found:
        return None, []
    believed = [d for _, _, estimate, d in found if in_sight(estimate)]
    doubted = [d for _, _, estimate, d in found if not in_sight(estimate)]
    on = shared_axis(
        [0.0, *(d.value for d in believed)],
        [end for d in believed for end in _ends(d)],
        [x for d in doubted for x in (d.value, *_ends(d))],
    )
    rows = [
        DifferenceRow(
            policy, method, estimate.verdict, difference, span(difference.value, difference.interval, on),
            None if difference.honest is None else span(difference.value, difference.honest, on),
            probability_best(table, table.policies[policy], table.methods[method]),
            table.episodes_to_halve.get(table.policies[policy], {}).get(table.methods[method]),
        )
        for policy, method, estimate, difference in found
    ]  # fmt: skip
    return on, rows


class Frames(TypedDict):
    """A row of frames (base64 PNG) and what they are."""

    label: str
    frames: list[str]


class Pictures(TypedDict):
    """Rows of frames under a title."""

    title: str
    rows: list[Frames]


def estimate_pictures(table: Comparison) -> list[tuple[int, int, list[Pictures]]]:
    """Pictures in ``provenance["pictures"]``: titled rows of frames, e.g. open-loop predictions."""
    return [
        (p, m, conform(e.provenance["pictures"], list[Pictures], "pictures"))
        for p, m, e in _each(table)
        if e.provenance.get("pictures")
    ]


def _each(table: Comparison) -> list[tuple[int, int, Estimate]]:
    return [
        (policy, method, row[name])
        for policy, row in enumerate(table.estimates.values())
        for method, name in enumerate(table.methods)
        if name in row
    ]


def _inside(table: Comparison, policy: int, estimate: Estimate) -> list[Figure]:
    curves, stats = estimate.curves, estimate.stats
    truth = table.truth.get(table.policies[policy], {}).get("value")
    draw: dict[tuple[str, ...], Callable[..., Figure]] = {
        ("lspe",): lambda v: lspe_curve(v, stats.get("spectral_radius"), truth, stats.get("iterations")),
        ("singular_values",): singular_values,
        ("leverage_data", "leverage_policy"): coverage,
        ("effective_sample_size",): lambda v: effective_sample_size(v, _steps(table)),
    }
    return [
        figure(*(curves[name] for name in needed))
        for needed, figure in draw.items()
        if all(_drawable(curves.get(name, ())) for name in needed)
    ]


def _time_series(estimate: Estimate | None) -> Sequence[float]:
    """Value over time; nothing for an estimate that is missing or blew up."""
    if estimate is None or estimate.status is Status.DIVERGED:
        return []
    values = estimate.curves.get("value_over_time", [])
    return values if _drawable(values) else []


def _drawable(values: Sequence[float]) -> bool:
    """A line needs two numbers."""
    return int(np.isfinite(np.asarray(values, dtype=np.float64)).sum()) > 1


def _steps(table: Comparison) -> float | None:
    """Steps of the longest logged episode, which thinned curves over the episode span."""
    return table.dataset.get("longest_episode")


def _training(curves: Mapping[str, Sequence[float]]) -> list[Figure]:
    """Every curve over the steps of its own training: `train/first_try/value` has `train/first_try/step`."""
    found = []
    for name, values in curves.items():
        own = f"{name.rpartition('/')[0]}/step"
        steps = curves.get(own, curves.get(_STEP))
        if not name.endswith("/step") and _drawable(values):
            at = steps if steps and len(steps) == len(values) else None
            found.append(training(name.removeprefix(_TRAIN), values, at))
    return found


def probability_best(table: Comparison, policy: str, method: str) -> float | None:
    """Of having the highest value: by the honest intervals where there are any, else by sampling alone."""
    if method in table.choices:
        return table.choices[method].best.get(policy)
    return table.probability_best.get(method, {}).get(policy)


def _ends(difference: Difference) -> tuple[float, ...]:
    known = [difference.interval, difference.honest]
    return tuple(end for one in known if one is not None for end in (one.low, one.high))
