"""How steady LSPE(BellmanComplete()) is on cheetah-run's states: five seeds on each of two logs.

    python -m bcrl_bench.studies.steadiness DATA

About twenty core-minutes; writes results/steadiness.json and goes on where it stopped. DATA is a folder for
the two logs, which are collected there: 20,000 transitions (40 episodes) each of the actors 025 and 100 with
noise 0.2, seed 7. The evaluated policy is actor 100. `moved` is the range of the value over the last half of
training, over its last value. No truth is read.
"""

import functools
import sys
from pathlib import Path

import numpy as np

import bcrl
from bcrl.data.build.combine import concatenate
from bcrl.data.dataset import Dataset
from bcrl.data.storage.folder import open_folder
from bcrl_bench.collect import Collection, Source, collect
from bcrl_bench.policies.shipped import shipped_policy
from bcrl_bench.rollouts import Behaviour
from bcrl_bench.studies.study import Row, Study

STUDY = Study("steadiness", "python -m bcrl_bench.studies.steadiness DATA", key=("log", "seed"))
TASK, DISCOUNT, SEEDS = "cheetah-run", 0.99, range(5)
LOGS = {"025": ("025",), "mixture": ("025", "100")}


def log_of(levels: tuple[str, ...], folder: Path) -> Dataset:
    """The logs of these actors together."""
    parts = []
    for level in levels:
        source = Source(level, Behaviour(shipped_policy(TASK, level), noise=0.2))
        collection = Collection(TASK, (source,), episodes=40, pixels=None, seed=7, processes=1)
        parts.append(open_folder(collect(collection, folder / level)))
    return parts[0] if len(parts) == 1 else concatenate(parts)


def cell(log: str, seed: int, *, folder: Path) -> Row:
    estimate = bcrl.evaluate(
        log_of(LOGS[log], folder),
        shipped_policy(TASK, "100"),
        discount=DISCOUNT,
        method=bcrl.LSPE(bcrl.BellmanComplete()),
        seed=seed,
    )
    values = np.asarray(estimate.curves["train/value"])
    half = values[len(values) // 2 :]
    return {
        "log": log,
        "seed": seed,
        "value": round(estimate.value, 1),
        "moved": round(float(np.ptp(half) / abs(half[-1])), 3),
        "status": str(estimate.status.value),
        "verdict": estimate.verdict,
    }


def main(folder: str) -> None:
    wanted = [(log, seed) for log in LOGS for seed in SEEDS]
    rows = STUDY.run(wanted, functools.partial(cell, folder=Path(folder)))
    for log in LOGS:
        values = np.array([row["value"] for row in rows if row["log"] == log])
        mean, spread, span = values.mean(), values.std(ddof=1), np.ptp(values)
        print(f"{log} mean {mean:.1f}, deviation {spread / mean:.1%}, range {span / mean:.1%}")


if __name__ == "__main__":
    main(sys.argv[1])
