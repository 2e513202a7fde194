"""How far the default representation is off where the value is known exactly, beside random features of the
same size.

    python -m bcrl_bench.studies.exact_worlds

Five seeds of each world, about fifteen core-minutes; writes results/exact_worlds.json and goes on where it
stopped. The error is against the exact value at the dataset's own start states. Random features choose their
width by held-out TD error. tests/representations/bellman_complete/test_exact_worlds.py repeats a few cells.
"""

import time

import numpy as np

from bcrl.estimators.lspe.method import LSPE
from bcrl.networks import Head
from bcrl.representations.bellman_complete import BellmanComplete
from bcrl.representations.fixed import RandomFeatures
from bcrl_bench.studies.study import Row, Study, ask_world
from bcrl_bench.worlds import low_rank, rich_lqr

STUDY = Study("exact_worlds", "python -m bcrl_bench.studies.exact_worlds", key=("world", "seed", "method"))
# Maker, episodes, length.
WORLDS = {"rich_lqr": (rich_lqr, 2000, 50), "low_rank": (low_rank, 400, 50)}
# The same number of features in a world, random ones with a constant added: 64, or 16 where 90 pairs (s, a)
# are all there is.
METHODS = {
    "rich_lqr": {"bellman_complete": BellmanComplete(), "random": RandomFeatures(dim=63)},
    "low_rank": {
        "bellman_complete": BellmanComplete(dim=16, head=Head(hidden=64), steps=300, batch_size=1024),
        "random": RandomFeatures(dim=15),
    },
}
SEEDS = range(5)


def cell(world_name: str, seed: int, method: str, repeats: int | None = None) -> Row:
    """One evaluation; errors are relative to the truth."""
    maker, episodes, length = WORLDS[world_name]
    world = maker(seed)
    dataset = world.dataset(episodes, length, seed)
    truth = float(world.v(dataset.observations["observation"][dataset.start_rows]).mean())
    clock = time.process_time()
    estimate = ask_world(LSPE(METHODS[world_name][method], repeats=repeats), world, dataset, seed=0)
    return {
        "world": world_name,
        "seed": seed,
        "method": method,
        "truth": truth,
        "value": estimate.value,
        "error": estimate.value / truth - 1.0,
        "verdict": estimate.verdict,
        "core_seconds": round(time.process_time() - clock, 1),
    }


def main() -> None:
    rows = STUDY.run([(w, seed, method) for w in WORLDS for seed in SEEDS for method in METHODS[w]], cell)
    for world in WORLDS:
        for method in METHODS[world]:
            errors = [abs(row["error"]) for row in rows if (row["world"], row["method"]) == (world, method)]
            print(world, method, f"median error {np.median(errors):.2%}")


if __name__ == "__main__":
    main()
