"""FlowDICE and ModelBased where the value is known exactly, five seeds each.

    python -m bcrl_bench.studies.rival_worlds                     the cells that are missing
    python -m bcrl_bench.studies.rival_worlds dice-tabular        of these only

About fifty core-minutes, most of them the two pixel worlds; writes results/rival_worlds.json. The error is
against the exact value of the start distribution, so the luck of the drawn start states is in it.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bcrl.estimators.dice.method import FlowDICE
from bcrl.estimators.model_based import ModelBased
from bcrl_bench.studies.study import Row, Study, ask_world
from bcrl_bench.worlds import lqr, pixel_lqr, random_tabular

STUDY = Study("rival_worlds", "python -m bcrl_bench.studies.rival_worlds", key=("cell", "seed"))
# World, method, episodes of 30 steps.
CELLS: dict[str, tuple[Callable[[], Any], Any, int]] = {
    "dice-tabular": (random_tabular, FlowDICE(), 300),
    "dice-lqr": (lqr, FlowDICE(), 400),
    "dice-pixels": (pixel_lqr, FlowDICE(encoder_steps=300), 300),
    "model-tabular": (random_tabular, ModelBased(), 300),
    "model-lqr": (lqr, ModelBased(), 300),
    "model-pixels": (pixel_lqr, ModelBased(), 300),
}
SEEDS, LENGTH = range(5), 30


def cell(name: str, seed: int) -> Row:
    """One evaluation."""
    make, method, episodes = CELLS[name]
    world, clock = make(), time.process_time()
    dataset = world.dataset(episodes, LENGTH, seed)
    estimate = ask_world(method, world, dataset, seed)
    return {
        "cell": name,
        "seed": seed,
        "error": round(estimate.value / world.value - 1.0, 4),
        "verdict": estimate.verdict,
        "core_seconds": round(time.process_time() - clock, 1),
    }


def main(names: list[str]) -> None:
    chosen = names or list(CELLS)
    rows = STUDY.run([(name, seed) for name in chosen for seed in SEEDS], cell)
    for name in chosen:
        errors = [abs(row["error"]) for row in rows if row["cell"] == name]
        print(name, f"median error {np.median(errors):.1%}")


if __name__ == "__main__":
    main(sys.argv[1:])
