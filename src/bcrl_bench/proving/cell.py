"""One cell of the proving ground: a case and a method in, a record out, which is all that tables read."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.errors import BadInput
from bcrl.estimate import Estimate
from bcrl.evaluation import evaluate
from bcrl.methods import parse_method
from bcrl_bench.experiments.cell import answer, peak_memory, plain, reset_peak_memory, rounded, short
from bcrl_bench.experiments.profile import Experiment
from bcrl_bench.proving.ground import PreparedCase, prepare
from bcrl_bench.proving.profile import Proving, case_of, set_of, settings_of_cell

POINTS = 25  # of a curve
REFUSED = "refused"  # the method said why it cannot answer


def run_case(proving: Proving, experiment: Experiment, cache: Path) -> dict[str, Any]:
    """Ask one method about one case, and hold its answer against the truth."""
    prepared = prepare(case_of(experiment), cache)
    case, method = prepared.case, parse_method(proving.methods[experiment.method])
    reset_peak_memory()
    wall, cpu = time.perf_counter(), time.process_time()
    estimate: Estimate | None = None
    try:
        estimate = evaluate(
            prepared.dataset,
            prepared.policy,
            discount=case.discount,
            horizon=case.horizon,
            method=method,
            seed=experiment.seed,
            next_steps=None,
        )
        said = answer(estimate)
        said["curves"] = {name: fewer(curve) for name, curve in said["curves"].items()}
    except BadInput as error:
        said = {"value": None, "verdict": REFUSED, "status": REFUSED, "reasons": [str(error)]}
    timings = {"wall": time.perf_counter() - wall, "core": time.process_time() - cpu}
    return {
        "experiment": asdict(experiment),
        "settings": settings_of_cell(proving, experiment),
        "case": asdict(case),
        "family": case.family,
        "set": set_of(case.family),
        "regime": case.regime,
        "mark": prepared.mark,
        "truth": asdict(prepared.truth),
        "scale": prepared.scale,
        "logged": prepared.logged,
        "error": relative_error(said["value"], prepared.truth.value, prepared.scale),
        **said,
        "visited": None if estimate is None else at_visited(estimate, prepared),
        "dataset": {"episodes": prepared.dataset.num_episodes, "transitions": len(prepared.dataset)},
        "timings": short(timings),
        "peak_memory_mb": round(peak_memory() / 2**20, 1),
    }


def relative_error(value: float | None, truth: float, scale: float) -> float | None:
    """|V^ - V| / max(|V|, S); None where there is no value."""
    if value is None:
        return None
    size = max(abs(truth), scale)
    return plain(abs(value - truth) / size) if size > 0.0 else 0.0 if value == truth else None


def at_visited(estimate: Estimate, prepared: PreparedCase) -> dict[str, Any] | None:
    """Estimated and true V along the target's way; None where either is not known."""
    if prepared.visited is None or estimate.value_function is None:
        return None
    observations, values, errors = prepared.visited
    guessed = estimate.value_function.value(prepared.dataset.keyed(observations))
    return {
        "count": len(values),
        "rmse": rounded(float(np.sqrt(np.mean((guessed - values) ** 2)))),
        "bias": rounded(float(np.mean(guessed - values))),
        "truth_sd": rounded(float(np.std(values))),
        "truth_standard_error": rounded(float(np.mean(errors))),  # null: single returns stand for V
    }


def fewer(curve: list[Any]) -> list[Any]:
    """At most `POINTS` of a curve, first and last among them."""
    if len(curve) <= POINTS:
        return curve
    return [curve[i] for i in np.linspace(0, len(curve) - 1, POINTS).astype(int)]
