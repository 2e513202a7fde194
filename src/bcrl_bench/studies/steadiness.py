"""How steady LSPE(BellmanComplete()) is on cheetah-run's states: results/steadiness.json.

    python -m bcrl_bench.studies.steadiness DATA   five seeds on each log, about twenty core-minutes; runs only what is missing

DATA is where the two logs are collected: 20,000 transitions (40 episodes) each of the actors 025 and 100 with noise 0.2,
seed 7. The evaluated policy is actor 100. `moved` is the range of the value over the last half of training, over its last
value. No truth is read.
"""

import json
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

OUT = Path(__file__).parents[3] / "results" / "steadiness.json"
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


def cell(log: str, seed: int, folder: Path) -> dict:
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
    rows = json.loads(OUT.read_text()) if OUT.exists() else []
    have = {(row["log"], row["seed"]) for row in rows}
    for log in LOGS:
        for seed in SEEDS:
            if (log, seed) not in have:
                rows.append(cell(log, seed, Path(folder)))
                OUT.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
        found = np.array([row["value"] for row in rows if row["log"] == log])
        print(
            log,
            f"mean {found.mean():.1f}, deviation {found.std(ddof=1) / found.mean():.1%}, "
            f"range {np.ptp(found) / found.mean():.1%}",
        )


if __name__ == "__main__":
    main(sys.argv[1])
