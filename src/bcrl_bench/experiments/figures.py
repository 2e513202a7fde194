"""The paper's figures, from records alone. Each function gives a figure, or None where the records cannot
support it.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from bcrl_bench.experiments.plots import (
    HEIGHT,
    WIDTH,
    Line,
    bars,
    colour,
    lines,
    log_axis,
    panels,
    pictures,
    save,
)
from bcrl_bench.experiments.protocol import (
    HEADLINE,
    TARGET,
    Metric,
    Record,
    Summary,
    by_method,
    mean_error,
    ranked_pairs,
    ranking,
    select,
    start_rmse,
    summary,
    tasks_of,
    visited_rmse,
)

PLAIN = "bcrl-plain"  # the loss that the ablations take a term from, where bcrl itself is our default
ABLATIONS = (PLAIN, "bcrl-no-design", "bcrl-design-only")
NO_CLAIM = "it runs; it tests no claim"
LEARNED = ("bcrl", "bcrl-default", "bcrl-mixture", "spr", "curl")
Maker = Callable[[Sequence[Record]], Figure | None]


def series(values: Sequence[float | None]) -> NDArray[np.float64]:
    """A curve of a record; null becomes nan."""
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def resampled(
    x: NDArray[np.float64], own: NDArray[np.float64], curve: NDArray[np.float64]
) -> NDArray[np.float64]:
    """A curve at common points; after its own end it keeps its last value."""
    return np.asarray(np.interp(x, own, curve))


def error_curve(record: Record, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """|V_k - V| / |V| along LSPE's iterations, kept above zero for the log axis."""
    truth, curve = record["truth"]["value"], series(record["curves"]["lspe"])
    own = np.linspace(1.0, record["stats"]["iterations"], len(curve))
    return np.asarray(np.maximum(np.abs(resampled(x, own, curve) - truth) / abs(truth), 1e-4))


def spectrum(record: Record, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Singular values over the largest, by share of the features."""
    curve = series(record["curves"]["singular_values"])
    return np.asarray(np.maximum(resampled(x, np.linspace(0.0, 1.0, len(curve)), curve / curve[0]), 1e-16))


def lspe_lines(records: Sequence[Record], methods: Sequence[str]) -> list[Line]:
    """LSPE's error by iteration, one line a method, as far as the slowest method usually runs."""
    groups = {m: g for m, g in by_method(records).items() if m in methods and "lspe" in g[0]["curves"]}
    if not groups:
        return []
    last = max(float(np.median([r["stats"]["iterations"] for r in g])) for g in groups.values())
    x = np.linspace(1.0, last, 100)
    return [Line(m, x, [error_curve(r, x) for r in g]) for m, g in groups.items()]


def lspe_curves(records: Sequence[Record], dataset: str) -> Figure | None:
    """Error of BCRL, SPR and CURL by LSPE iteration, one panel a task."""
    chosen = select(records, dataset=dataset, policy=TARGET)
    chosen = [r for r in chosen if r["experiment"]["method"] in LEARNED]
    tasks = list(dict.fromkeys(r["experiment"]["task"] for r in chosen))
    if not tasks:
        return None
    figure, axes = panels(len(tasks))
    for panel, task in zip(axes, tasks, strict=True):
        lines(panel, lspe_lines(select(chosen, task=task), LEARNED), log=True)
        panel.set_title(task, fontsize=9)
        panel.set_xlabel("LSPE iteration", fontsize=8)
    axes[0].set_ylabel("relative error", fontsize=8)
    return figure


def error_bars(records: Sequence[Record], dataset: str) -> Figure | None:
    """RMSE over start states (methods with V(s)) and |mean error| (all methods), over all tasks."""
    chosen = [
        r
        for r in select(records, dataset=dataset, policy=TARGET)
        if r["experiment"]["method"] not in ABLATIONS
    ]
    return bar_figure(
        chosen, {"RMSE over start states / truth": start_rmse, "|mean error| / truth": mean_error}
    )


def bar_figure(records: Sequence[Record], metrics: Mapping[str, Metric]) -> Figure | None:
    """A panel of bars for each metric."""
    if not records:
        return None
    figure, axes = panels(len(metrics))
    for panel, (label, metric) in zip(axes, metrics.items(), strict=True):
        bars(panel, summaries(records, metric), label)
    return figure


def summaries(records: Sequence[Record], metric: Metric) -> dict[str, Summary]:
    """Of every method that has whole seeds and this number."""
    tasks = tasks_of(records)
    found = {method: summary(group, metric, tasks) for method, group in by_method(records).items()}
    return {method: number for method, number in found.items() if number is not None}


def spearman(records: Sequence[Record]) -> Figure | None:
    """Rank correlation and regret@1 over the policies."""
    chosen = [r for r in select(records, dataset=HEADLINE) if r["experiment"]["method"] not in ABLATIONS]
    pairs = ranked_pairs(chosen)
    found = {m: rank for m, g in by_method(chosen).items() if (rank := ranking(g, pairs)) is not None}
    if not found:
        return None
    figure, axes = panels(2)
    bars(axes[0], {m: rank.correlation for m, rank in found.items()}, "Spearman correlation")
    bars(axes[1], {m: rank.regret for m, rank in found.items()}, "regret@1")
    return figure


def beyond_starts(records: Sequence[Record]) -> Figure | None:
    """RMSE at visited steps of target rollouts: over all of them, and step by step, where diverged cells have
    no line.
    """
    everything = [
        r
        for r in select(records, dataset=HEADLINE, policy=TARGET)
        if r["experiment"]["method"] not in ABLATIONS and r["visited"] is not None
    ]
    if not everything:
        return None
    tasks = sorted(tasks_of(everything))
    figure, axes = panels(1 + len(tasks), columns=5)
    bars(axes[0], summaries(everything, visited_rmse), "RMSE at visited steps / truth")
    finite = [r for r in everything if r["value"] is not None]
    for panel, task in zip(axes[1:], tasks, strict=True):
        shown = []
        for method, group in by_method(select(finite, task=task)).items():
            scale = abs(group[0]["truth"]["value"])
            curves = [series(r["visited"]["rmse_at"]) / scale for r in group]
            shown.append(Line(method, series(group[0]["visited"]["steps"]), curves))
        lines(panel, shown, log=True, legend=False)  # the bars name the colours
        panel.set_title(f"{task} (without diverged)", fontsize=8)
        panel.set_xlabel("step of the target's rollout", fontsize=8)
    return figure


def ablation(records: Sequence[Record], other: str) -> Figure | None:
    """The paper's loss with and without a term: LSPE error by iteration, and singular values of the features'
    covariance.
    """
    chosen = select(records, dataset=HEADLINE, policy=TARGET)
    tasks = list(dict.fromkeys(r["experiment"]["task"] for r in select(chosen, method=other)))
    whole = PLAIN if select(chosen, method=PLAIN) else "bcrl"
    if not tasks or not select(chosen, method=whole):
        return None
    figure, axes = panels(2 * len(tasks), columns=2)
    for number, task in enumerate(tasks):
        pair = [r for r in select(chosen, task=task) if r["experiment"]["method"] in (whole, other)]
        lines(axes[2 * number], lspe_lines(pair, (whole, other)), log=True)
        axes[2 * number].set_title(f"{task}: relative error by LSPE iteration", fontsize=8)
        x = np.linspace(0.0, 1.0, 100)
        spectra = [Line(m, x, [spectrum(r, x) for r in g]) for m, g in by_method(pair).items()]
        lines(axes[2 * number + 1], spectra, log=True)
        axes[2 * number + 1].set_title(f"{task}: singular values / largest", fontsize=8)
    return figure


def during_training(records: Sequence[Record]) -> Figure | None:
    """Held-out completeness and the covariance's spectrum while BCRL trains; dashed where it is a second
    training.
    """
    chosen = select(records, dataset=HEADLINE, policy=TARGET, method="bcrl")
    names = [name for name in TRAINING if chosen and all(name in r["curves"] for r in chosen)]
    if not names:
        return None
    figure, axes = panels(len(names))
    tasks = list(dict.fromkeys(r["experiment"]["task"] for r in chosen))
    for panel, name in zip(axes, names, strict=True):
        for task in tasks:
            own = select(chosen, task=task)
            for again, style in ((False, "-"), (True, "--")):  # a second training is shorter than the first
                alike = [r["curves"] for r in own if ("train/first_try/value" in r["curves"]) is again]
                if alike:
                    middle = np.median([series(curves[name]) for curves in alike], axis=0)
                    hue = f"C{tasks.index(task)}"
                    panel.plot(series(alike[0]["train/step"]), middle, style, color=hue, linewidth=1.2)
        log_axis(panel)
        panel.set_title(TRAINING[name], fontsize=8)
        panel.set_xlabel("update", fontsize=8)
        panel.tick_params(labelsize=7)
    patches = [Patch(color=f"C{number}", label=task) for number, task in enumerate(tasks)]
    dashed = Line2D([], [], color="black", linestyle="--", label="second training")
    axes[0].legend(handles=[*patches, dashed], fontsize=7, frameon=False)
    return figure


TRAINING = {
    "train/held_out/eps_mean": "completeness error (held out, mean)",
    "train/held_out/eps_rel": "completeness error (held out, worst)",
    "train/condition_number": "condition number of the covariance",
    "train/lambda_min": "smallest eigenvalue of the covariance",
}


def error_against_time(records: Sequence[Record]) -> Figure | None:
    """|mean error| against core-seconds, one point a cell; ablations cost what their method costs."""
    chosen = [r for r in select(records, policy=TARGET) if r["experiment"]["method"] not in ABLATIONS]
    if not chosen:
        return None
    figure = Figure(figsize=(1.5 * WIDTH, 1.3 * HEIGHT), layout="constrained")
    panel = figure.add_subplot()
    for method, group in by_method(chosen).items():
        x, y = [r["timings"]["core"] for r in group], [max(mean_error(r), 1e-3) for r in group]
        panel.scatter(x, y, s=10, color=colour(method), label=method, alpha=0.8)
    panel.set(xscale="log", yscale="log", xlabel="core-seconds", ylabel="|mean error| / truth")
    panel.legend(fontsize=6, frameon=False, ncols=2)
    return figure


FIGURES: dict[str, Maker] = {
    "lspe-curves": lambda records: lspe_curves(records, HEADLINE),
    "lspe-curves-mixture": lambda records: lspe_curves(records, "mixture"),
    "errors": lambda records: error_bars(records, HEADLINE),
    "errors-050": lambda records: error_bars(records, "050"),
    "errors-mixture": lambda records: error_bars(records, "mixture"),
    "ranking": spearman,
    "beyond-starts": beyond_starts,
    "ablation-design": lambda records: ablation(records, "bcrl-no-design"),
    "ablation-completeness": lambda records: ablation(records, "bcrl-design-only"),
    "training": during_training,
    "error-against-time": error_against_time,
}


def no_claim(records: Sequence[Record]) -> bool:
    """Whether methods took a few updates only, so that nothing follows from their numbers."""
    return any(record["settings"].get("updates") is not None for record in records)


def write_figures(records: Sequence[Record], portraits: Mapping[str, Any], folder: Path) -> dict[str, bool]:
    """All figures that the records can support, as PNG and PDF; which were written."""
    made: dict[str, Figure | None] = {name: make(records) for name, make in FIGURES.items()}
    frames = {task: portrait["frame"] for task, portrait in portraits.items()}
    made["frames"] = pictures(frames) if frames else None
    for name, figure in made.items():
        if figure is not None:
            if no_claim(records):
                figure.text(
                    0.5, 0.5, NO_CLAIM, ha="center", va="center", rotation=20, alpha=0.35, color="red"
                )
            save(figure, folder / name)
    return {name: figure is not None for name, figure in made.items()}
