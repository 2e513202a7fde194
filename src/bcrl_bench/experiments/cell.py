"""One cell: an experiment in, its record out. The record is all that figures and tables ever read."""

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Dataset
from bcrl.data.storage.contents import content_hash
from bcrl.estimate import Estimate
from bcrl.evaluation import evaluate
from bcrl.inference.contrast import logged_value
from bcrl_bench.experiments.baseline import method_of
from bcrl_bench.experiments.identity import cell_settings
from bcrl_bench.experiments.profile import Experiment, Profile
from bcrl_bench.experiments.world import EVERY, World
from bcrl_bench.truth import Truth

POINTS = 100  # of a curve


def run_cell(profile: Profile, experiment: Experiment, cache: Path) -> dict[str, Any]:
    """Evaluate one policy by one method on one dataset, and hold it against the truth."""
    world, task = World(profile, cache), experiment.task
    dataset, policy = world.dataset(task, experiment.dataset), world.policy(task, experiment.policy)
    truth = world.truth(task, experiment.policy)
    visited, steps = world.visited(task, experiment.policy)
    method = method_of(profile, experiment.method)
    reset_peak_memory()
    wall, cpu = time.perf_counter(), time.process_time()
    estimate = evaluate(dataset, policy, discount=profile.discount, method=method, seed=experiment.seed)
    timings = {"wall": time.perf_counter() - wall, "core": time.process_time() - cpu}
    memory = peak_memory()
    cpu = time.process_time()
    anywhere = None if estimate.value_function is None else estimate.value_function.value(visited)
    timings["core_visited"] = time.process_time() - cpu
    return {
        "experiment": asdict(experiment),
        "profile": profile.name,
        "settings": cell_settings(profile, experiment),
        **answer(estimate),
        "truth": {
            "value": truth.value,
            "standard_error": plain(truth.standard_error),  # one rollout has none
            "rollouts": truth.rollouts,
            "return": list(truth.undiscounted),
            "key": truth.key,
        },
        "starts": None if anywhere is None else at_starts(estimate, truth),
        "visited": None if anywhere is None else along_the_way(anywhere, steps, truth),
        "dataset": about(dataset, profile.discount),
        "timings": short(dict(estimate.timings) | timings),
        "peak_memory_mb": round(memory / 2**20, 1),
    }


def answer(estimate: Estimate) -> dict[str, Any]:
    """What the method said; curves thinned."""
    bounds = estimate.interval
    return {
        "value": plain(estimate.value),
        "standard_error": None if estimate.standard_error is None else plain(estimate.standard_error),
        "interval": None if bounds is None else [plain(bounds.low), plain(bounds.high)],
        "verdict": estimate.verdict,
        "status": estimate.status.value,
        "checks": [
            {
                "name": c.name,
                "value": rounded(c.value),
                "threshold": c.threshold,
                "verdict": c.verdict,
                "binding": c.binding,
            }
            for c in estimate.checks
        ],
        "reasons": estimate.reasons[:4],
        "stats": short(estimate.stats),
        "curves": {name: thinned(curve) for name, curve in estimate.curves.items()},
        "curve_lengths": {name: len(curve) for name, curve in estimate.curves.items()},
    }


def at_starts(estimate: Estimate, truth: Truth) -> dict[str, Any]:
    """Estimated and true V(s0) at the data's own start states; all behaviours have the same, in order."""
    exact = np.resize(truth.returns_to_go[:, 0], len(estimate.per_start))
    wrong = estimate.per_start - exact
    return {
        "count": len(exact),
        "rmse": plain(float(np.sqrt(np.mean(wrong**2)))),
        "estimate": thinned(estimate.per_start[: truth.rollouts]),
        "truth": thinned(truth.returns_to_go[:, 0]),
    }


def along_the_way(values: NDArray[np.float64], steps: NDArray[np.int64], truth: Truth) -> dict[str, Any]:
    """Estimated and true V(s_t) along target rollouts: means and RMSE over rollouts at each step."""
    grid = values.reshape(-1, len(steps))
    exact = truth.returns_to_go[: len(grid), ::EVERY][:, : len(steps)]
    wrong = grid - exact
    return {
        "steps": steps.tolist(),
        "rollouts": len(grid),
        "rmse": plain(float(np.sqrt(np.mean(wrong**2)))),
        "rmse_at": thinned(np.sqrt(np.mean(wrong**2, axis=0))),
        "estimate_at": thinned(grid.mean(axis=0)),
        "truth_at": thinned(exact.mean(axis=0)),
    }


def about(dataset: Dataset, discount: float) -> dict[str, Any]:
    """The dataset's size, hash and own returns."""
    logged = logged_value(dataset, discount=discount, horizon=None)
    assert logged is not None
    return {
        "hash": content_hash(dataset),
        "episodes": dataset.num_episodes,
        "transitions": len(dataset),
        "mean_return": float(dataset.rewards.sum()) / dataset.num_episodes,
        "logged_value": logged.value,
    }


def thinned(values: Sequence[float] | NDArray[np.float64]) -> list[float | None]:
    """At most `POINTS` of a series, evenly spread, first and last among them, to six digits; null where not
    finite.
    """
    if len(values) <= POINTS:
        return [rounded(float(v)) for v in values]
    return [rounded(float(values[i])) for i in np.linspace(0, len(values) - 1, POINTS).astype(int)]


def rounded(value: float | None) -> float | None:
    """Six digits; null for what JSON has no number for."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def short(numbers: Mapping[str, float]) -> dict[str, float | None]:
    """Named numbers to six digits."""
    return {name: rounded(float(value)) for name, value in numbers.items()}


def plain(value: float) -> float | None:
    """All digits, or null for what JSON has no number for."""
    return float(value) if math.isfinite(value) else None


def reset_peak_memory() -> None:
    """Linux: let the peak start from now, so that a process of many cells knows the peak of each."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """Largest resident size of this process since the last reset, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024
