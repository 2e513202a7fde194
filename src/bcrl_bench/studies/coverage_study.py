"""Coverage of the 95 % interval of LSPE(BellmanComplete()) where the value is known: the nonlinear LQR with
distractors.

    python -m bcrl_bench.studies.coverage_study           50 replications; goes on where it stopped
    python -m bcrl_bench.studies.coverage_study 1 2   every second one, beside another process that does `0 2`

A replication draws its own data (400 episodes of 50 steps) and its own weights, and takes about 100
core-seconds. Writes results/coverage_bcrl.json. The truth is the exact value at the start distribution, as
the interval claims.
"""

import sys
import time

import numpy as np

from bcrl.estimators.lspe.method import LSPE
from bcrl.representations.bellman_complete import BellmanComplete
from bcrl_bench.studies.study import Row, Study, ask_world
from bcrl_bench.worlds import rich_lqr

METHOD = LSPE(BellmanComplete())
STUDY = Study("coverage_bcrl", "python -m bcrl_bench.studies.coverage_study", key=("seed",), method=METHOD)
EPISODES, LENGTH, REPLICATIONS = 400, 50, 50


def replication(seed: int) -> Row:
    world = rich_lqr()
    dataset = world.dataset(EPISODES, LENGTH, seed)
    clock = time.process_time()
    estimate = ask_world(METHOD, world, dataset, seed)
    assert estimate.interval is not None
    return {
        "seed": seed,
        "error": estimate.value / world.value - 1.0,
        "standard_error": estimate.standard_error / abs(world.value),
        "covered": bool(world.value in estimate.interval),
        "verdict": estimate.verdict,
        "core_seconds": round(time.process_time() - clock, 1),
    }


def summary(rows: list[Row]) -> Row:
    """Coverage, and what decides it: the mean error against the interval's width and the errors' spread."""
    errors = np.array([row["error"] for row in rows])
    return {
        "replications": len(rows),
        "coverage": float(np.mean([row["covered"] for row in rows])),
        "mean_error": float(errors.mean()),
        "spread_of_errors": float(errors.std(ddof=1)) if len(rows) > 1 else float("nan"),
        "mean_standard_error": float(np.mean([row["standard_error"] for row in rows])),
    }


def main(first: int = 0, every: int = 1) -> None:
    print(summary(STUDY.run([(seed,) for seed in range(first, REPLICATIONS, every)], replication)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
