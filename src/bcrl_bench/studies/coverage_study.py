"""Coverage of the 95 % interval of LSPE(BellmanComplete()) where the value is known: the nonlinear LQR with distractors.

    python -m bcrl_bench.studies.coverage_study   50 replications: results/coverage_bcrl.json, resumes where it stopped
    python -m bcrl_bench.studies.coverage_study 1 2       every second one, beside another process that does `0 2`

A replication draws its own data (400 episodes of 50 steps) and its own weights, and takes about 80 core-seconds; the truth is the
exact value at the start distribution, as the interval claims.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

from bcrl.estimators.lspe.method import LSPE
from bcrl.question import starts_of
from bcrl.representations.bellman_complete import BellmanComplete
from bcrl.training import Run
from bcrl_bench.asking import ask
from bcrl_bench.worlds import rich_lqr

ROOT = Path(__file__).parents[3]

OUT = ROOT / "results" / "coverage_bcrl.json"
RECIPE = BellmanComplete()
EPISODES, LENGTH, REPLICATIONS = 400, 50, 50


def replication(seed: int) -> dict:
    world = rich_lqr()
    dataset = world.dataset(EPISODES, LENGTH, seed)
    clock = time.process_time()
    estimate = ask(
        LSPE(RECIPE),
        dataset,
        {"target": world.target},
        discount=world.discount,
        horizon=None,
        starts=starts_of(dataset),
        seed=seed,
        run=Run(),
    )["target"]
    assert estimate.interval is not None
    return {
        "seed": seed,
        "error": estimate.value / world.value - 1.0,
        "standard_error": estimate.standard_error / abs(world.value),
        "covered": bool(world.value in estimate.interval),
        "verdict": estimate.verdict,
        "core_seconds": round(time.process_time() - clock, 1),
    }


def summary(rows: list[dict]) -> dict:
    """Coverage, and what decides it: the mean error against the interval's width and the errors' own spread."""
    errors = np.array([row["error"] for row in rows])
    return {
        "replications": len(rows),
        "coverage": float(np.mean([row["covered"] for row in rows])),
        "mean_error": float(errors.mean()),
        "spread_of_errors": float(errors.std(ddof=1)) if len(rows) > 1 else float("nan"),
        "mean_standard_error": float(np.mean([row["standard_error"] for row in rows])),
    }


def rows_so_far() -> list[dict]:
    """Rows of this very recipe; those of another are forgotten."""
    found = json.loads(OUT.read_text()) if OUT.exists() else {"recipe": "", "rows": []}
    return found["rows"] if found["recipe"] == repr(LSPE(RECIPE)) else []


def main(first: int = 0, every: int = 1) -> None:
    for seed in range(first, REPLICATIONS, every):
        if any(row["seed"] == seed for row in rows_so_far()):
            continue
        found = replication(seed)
        # Read again: the other process may have added its own since.
        rows = sorted([*rows_so_far(), found], key=lambda row: row["seed"])
        part = OUT.with_suffix(f".part{first}")
        record = {"recipe": repr(LSPE(RECIPE))} | summary(rows) | {"rows": rows}
        part.write_text(json.dumps(record, indent=0) + "\n")
        part.replace(OUT)
        print(found, flush=True)
    print(summary(rows_so_far()))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
