"""How far the default representation is off where the value is known exactly, beside random features of the same size.

    python -m bcrl_bench.studies.exact_worlds   five seeds of each world: results/exact_worlds.json, resumes where it stopped

The error is against the exact value at the dataset's own start states. Random features choose their width by held-out TD
error. About fifteen core-minutes; tests/representations/bellman_complete/test_exact_worlds.py repeats a few cells.
"""

import json
import time
from pathlib import Path

import numpy as np

from bcrl.estimators.lspe.method import LSPE
from bcrl.networks import Head
from bcrl.question import starts_of
from bcrl.representations.bellman_complete import BellmanComplete
from bcrl.representations.fixed import RandomFeatures
from bcrl.training import Run
from bcrl_bench.asking import ask
from bcrl_bench.worlds import low_rank, rich_lqr

ROOT = Path(__file__).parents[3]

# Maker, episodes, length.
WORLDS = {"rich_lqr": (rich_lqr, 2000, 50), "low_rank": (low_rank, 400, 50)}
# The same number of features in a world, random ones with a constant added: 64, or 16 where 90 pairs (s, a) are all there is.
METHODS = {
    "rich_lqr": {"bellman_complete": BellmanComplete(), "random": RandomFeatures(dim=63)},
    "low_rank": {
        "bellman_complete": BellmanComplete(dim=16, head=Head(hidden=64), steps=300, batch_size=1024),
        "random": RandomFeatures(dim=15),
    },
}
SEEDS = range(5)


def cell(world_name: str, seed: int, method: str, repeats: int | None = None) -> dict:
    """One evaluation; errors are relative to the truth."""
    maker, episodes, length = WORLDS[world_name]
    world = maker(seed)
    dataset = world.dataset(episodes, length, seed)
    truth = float(world.v(dataset.observations["observation"][dataset.start_rows]).mean())
    clock = time.process_time()
    estimate = ask(
        LSPE(METHODS[world_name][method], repeats=repeats),
        dataset,
        {"target": world.target},
        discount=world.discount,
        horizon=None,
        starts=starts_of(dataset),
        seed=0,
        run=Run(),
    )["target"]
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
    out = ROOT / "results" / "exact_worlds.json"
    done = json.loads(out.read_text()) if out.exists() else []
    have = {(row["world"], row["seed"], row["method"]) for row in done}
    for world in WORLDS:
        for seed in SEEDS:
            for method in METHODS[world]:
                if (world, seed, method) not in have:
                    done.append(cell(world, seed, method))
                    out.write_text(json.dumps(done, indent=0) + "\n")
                    print(done[-1], flush=True)
    for world in WORLDS:
        for method in METHODS[world]:
            errors = [abs(row["error"]) for row in done if (row["world"], row["method"]) == (world, method)]
            print(world, method, f"median error {np.median(errors):.2%}")


if __name__ == "__main__":
    main()
