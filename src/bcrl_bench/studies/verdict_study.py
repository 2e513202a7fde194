"""Where the verdict's thresholds come from: checks beside true errors on worlds whose values are known.

    python -m bcrl_bench.studies.verdict_study            seeds 100-109: results/verdict_study.json
    python -m bcrl_bench.studies.verdict_study 200        seeds 200-209: results/verdict_check.json
    python -m bcrl_bench.studies.verdict_study 300  seeds 300-324: results/verdict_first_worlds.json
    python -m bcrl_bench.studies.verdict_study 400  seeds 400-424: results/verdict_worlds.json

160 evaluations (the first two) or 400, of one or two core-seconds each; goes on where it stopped. Thresholds
were set on seeds 100-109, which no test uses, and then held against seeds 200-209; both were drawn again,
with thresholds unchanged, when some LQR worlds had turned out to be unstable. Here only worlds are used;
which bounds were moved after a benchmark task's truth had been seen is in
results/verdict_history.md.
"""

import functools
import sys

import numpy as np

from bcrl.estimators.lspe.method import LSPE
from bcrl.linear import Moments, kappa, occupancy_moment
from bcrl.representations.fixed import GivenFeatures, RandomFeatures
from bcrl_bench.repository import origin
from bcrl_bench.studies.study import Row, Study, ask_world
from bcrl_bench.worlds import low_rank, lqr, random_tabular, rich_lqr
from bcrl_bench.worlds.base import transitions

MAKERS = {"lqr": lqr, "random_tabular": random_tabular, "low_rank": low_rank, "rich_lqr": rich_lqr}


@functools.cache
def coverage(name: str, seed: int) -> float:
    """kappa(p0) of a world: how well its behaviour covers its target, on exact features; 400 episodes of each
    policy.
    """
    world = MAKERS[name](seed)
    rng = np.random.default_rng([seed, 0xC0])
    logged, wanted = (transitions(world.episodes(400, 30, rng, p)) for p in (world.behaviour, world.target))
    phi, goal = (world.features(part["observations"], part["actions"]) for part in (logged, wanted))
    moments = Moments.from_features(phi, phi, logged["rewards"], logged["terminated"])
    time = np.arange(len(goal)) - np.searchsorted(wanted["episode"], wanted["episode"])
    return kappa(moments, occupancy_moment(goal, time, wanted["terminated"], world.discount)).kappa


def cell(name: str, seed: int, episodes: int, features: str) -> Row:
    world = MAKERS[name](seed)
    dataset = world.dataset(episodes, 30, seed)
    representation = GivenFeatures(world.features) if features == "exact" else RandomFeatures(dim=100)
    estimate = ask_world(LSPE(representation), world, dataset, seed)
    scale = max(abs(world.value), float(np.std(world.v(next(iter(dataset.start_observations().values()))))))
    return {
        "world": name,
        "seed": seed,
        "episodes": episodes,
        "features": features,
        "truth": world.value,
        "value": estimate.value,
        "error": abs(estimate.value - world.value) / scale,
        "covered": None if estimate.interval is None else bool(world.value in estimate.interval),
        "verdict": estimate.verdict,
        "kappa": coverage(name, seed),
        "checks": {check.name: [check.value, check.verdict] for check in estimate.checks},
        "stats": dict(estimate.stats),
    }


# First seed: file, number of seeds.
STUDIES = {
    100: ("verdict_study", 10),
    200: ("verdict_check", 10),
    300: ("verdict_first_worlds", 25),
    400: ("verdict_worlds", 25),
}


def main(first: int) -> None:
    name, seeds = STUDIES[first]
    command = f"python -m bcrl_bench.studies.verdict_study {first}"
    study = Study(name, command, key=("world", "seed", "episodes", "features"), about=origin())
    wanted = [
        (world, seed, episodes, features)
        for world in MAKERS
        for seed in range(first, first + seeds)
        for episodes in (30, 300)
        for features in ("exact", "random")
    ]
    study.run(wanted, cell)


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else "100"
    if chosen not in map(str, STUDIES):
        raise SystemExit(f"{chosen!r} is no study; known: {', '.join(map(str, STUDIES))}.")
    main(int(chosen))
