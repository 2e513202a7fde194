"""How near methods come to the efficiency bound on ICU-Sepsis: ten logs of 2,000 expert episodes.

    python -m bcrl_bench.studies.icu_sepsis_rmse

About five core-minutes; writes results/icu_sepsis_rmse.json and goes on where it stopped. Each row has the
root mean squared error over the logs of one method about one policy (discount 0.99), as a share of the true
value, and its ratio to the bound of icu_sepsis.py, which no method beats in all such worlds.
"""

import time

import numpy as np

import bcrl
from bcrl.data.dataset import Dataset
from bcrl_bench.asking import ask
from bcrl_bench.proving.families.icu_sepsis import FAMILY, make
from bcrl_bench.proving.world import record
from bcrl_bench.studies.icu_sepsis import EPISODES, POLICIES, bound
from bcrl_bench.studies.study import Row, Study

LOGS, DISCOUNT = 10, 0.99
METHODS = {"consensus": bcrl.Consensus(), "random features": bcrl.LSPE(bcrl.RandomFeatures())}
STUDY = Study(
    "icu_sepsis_rmse",
    "python -m bcrl_bench.studies.icu_sepsis_rmse",
    key=("method",),
    about={"episodes": EPISODES, "logged_by": "expert", "logs": LOGS, "discount": DISCOUNT},
)


def log(seed: int) -> Dataset:
    """2,000 episodes of the clinicians."""
    world = make(0)
    return record(world, world.policies["medium"], EPISODES, FAMILY.length, np.random.default_rng([5, seed]))


def row(method: str) -> Row:
    world, began = make(0), time.process_time()
    asked = {name: world.policies[kind] for name, kind in POLICIES.items()}
    found = [ask(METHODS[method], log(seed), asked, discount=DISCOUNT, seed=seed) for seed in range(LOGS)]
    seconds = (time.process_time() - began) / (LOGS * len(asked))
    made: Row = {"method": method, "core_seconds_a_policy": round(seconds, 1)}
    for name, kind in POLICIES.items():
        value, variance = bound(world, world.clinicians, world.policies[kind].table, DISCOUNT)
        errors = np.array([answers[name].value - value for answers in found])
        rmse = float(np.sqrt(np.mean(errors**2)))
        made[name] = {
            "rmse": round(rmse / value, 4),
            "bias": round(float(errors.mean()) / value, 4),
            "ratio_to_bound": round(rmse / float(np.sqrt(variance / EPISODES)), 2),
        }
    return made


def main() -> None:
    STUDY.run([(name,) for name in METHODS], row)


if __name__ == "__main__":
    main()
