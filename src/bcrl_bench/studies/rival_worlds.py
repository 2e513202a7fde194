"""BestDICE and ModelBased where the value is known exactly, five seeds each: results/rival_worlds.json.

    python -m bcrl_bench.studies.rival_worlds   runs the cells that are missing
    python -m bcrl_bench.studies.rival_worlds dice-tabular     only these

The error is against the exact value of the start distribution, so the luck of the drawn start states is in it.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.estimators.dice.method import BestDICE
from bcrl.estimators.model_based import ModelBased
from bcrl.question import starts_of
from bcrl.training import Run
from bcrl_bench.asking import ask
from bcrl_bench.worlds import lqr, pixel_lqr, random_tabular

ROOT = Path(__file__).parents[3]

OUT = ROOT / "results" / "rival_worlds.json"
# World, method, episodes of 30 steps.
CELLS: dict[str, tuple[Callable[[], Any], Any, int]] = {
    "dice-tabular": (random_tabular, BestDICE(), 300),
    "dice-lqr": (lqr, BestDICE(), 400),
    "dice-pixels": (pixel_lqr, BestDICE(encoder_steps=300), 300),
    "model-tabular": (random_tabular, ModelBased(), 300),
    "model-lqr": (lqr, ModelBased(), 300),
    "model-pixels": (pixel_lqr, ModelBased(), 300),
}
SEEDS, LENGTH = range(5), 30


def cell(name: str, seed: int) -> dict[str, Any]:
    """One evaluation."""
    make, method, episodes = CELLS[name]
    world, clock = make(), time.process_time()
    dataset = world.dataset(episodes, LENGTH, seed)
    asked = {"discount": world.discount, "horizon": None, "seed": seed, "starts": starts_of(dataset)}
    estimate = ask(method, dataset, {"target": world.target}, **asked, run=Run())["target"]
    return {
        "cell": name,
        "seed": seed,
        "error": round(estimate.value / world.value - 1.0, 4),
        "verdict": estimate.verdict,
        "core_seconds": round(time.process_time() - clock, 1),
    }


def main(names: list[str]) -> None:
    rows = json.loads(OUT.read_text()) if OUT.exists() else []
    have = {(row["cell"], row["seed"]) for row in rows}
    for name in names or list(CELLS):
        for seed in SEEDS:
            if (name, seed) not in have:
                rows.append(cell(name, seed))
                OUT.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
                print(rows[-1], flush=True)
        errors = [abs(row["error"]) for row in rows if row["cell"] == name]
        print(name, f"median error {np.median(errors):.1%}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
