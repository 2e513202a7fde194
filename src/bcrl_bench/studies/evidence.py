"""Several methods beside the truth on three worlds, each method with its honest interval and verdict.

    python -m bcrl_bench.studies.evidence [WORLD] [METHOD ...]

ICU-Sepsis: half-way from the clinicians to the optimal policy, from 400 of their episodes. Open Bandit: the
shop's policy from the log of the random one; the truth is what it earned itself. Control: a linear controller
of two motors, from a log of a weaker one with noise. Writes results/evidence.json and docs/evidence/*.png.
A world's name (icu-sepsis, open-bandit, control) does that one alone, methods' names only these, without a
picture. BCRL and FQE take about a core-minute each, all others seconds.
"""

import sys
from collections.abc import Mapping, Sequence

import numpy as np

from bcrl.comparison import Comparison
from bcrl.evaluation import compare
from bcrl_bench.proving.families import icu_sepsis
from bcrl_bench.proving.linear_quadratic import linear_quadratic
from bcrl_bench.proving.regimes import Noisy
from bcrl_bench.proving.world import record
from bcrl_bench.repository import ROOT
from bcrl_bench.studies.open_bandit import policy, read_log
from bcrl_bench.studies.study import Row, Study

STUDY = Study("evidence", "python -m bcrl_bench.studies.evidence", key=("world", "method"))
METHODS = {
    "random features": "random",
    "consensus": "consensus",
    "importance": "is",
    "anchored": "anchored",
    "dice": "dice",
    "model": "model",
}
PICTURES = ROOT / "docs" / "evidence"


def sepsis(methods: Mapping[str, str]) -> Comparison:
    world = icu_sepsis.make(0)
    log = record(world, world.policies["medium"], 400, 40, np.random.default_rng(1))
    truth = {"half-way": {"value": world.exact_value(world.policies["good"], 0.99, None)}}
    return compare(log, {"half-way": world.policies["good"]}, discount=0.99, methods=methods, truth=truth)


def shop(methods: Mapping[str, str]) -> Comparison:
    own = read_log("men", "bts").rewards
    error = float(own.std(ddof=1) / np.sqrt(len(own)))
    truth = {"the shop's": {"value": float(own.mean()), "standard_error": error}}
    target = {"the shop's": policy("bts", "men")}
    return compare(read_log("men", "random"), target, discount=0.0, methods=methods, truth=truth)


def control(methods: Mapping[str, str]) -> Comparison:
    world = linear_quadratic(0)
    logging = Noisy(world.policies["medium"], 0.3)
    log = record(world, logging, 250, 50, np.random.default_rng(1))
    truth = {"firmer": {"value": world.exact_value(world.policies["good"], 0.9, None)}}
    return compare(log, {"firmer": world.policies["good"]}, discount=0.9, methods=methods, truth=truth)


WORLDS = {"ICU-Sepsis": sepsis, "Open Bandit": shop, "control": control}
# A policy of one step needs no model and no weights of states; one that draws nothing none of actions.
ASKED = {
    "ICU-Sepsis": METHODS,
    "Open Bandit": {name: METHODS[name] for name in ("random features", "consensus", "importance")},
    "control": {**{name: method for name, method in METHODS.items() if method != "is"}, "bcrl": "bcrl"},
}


def rows(world: str, methods: Mapping[str, str]) -> Mapping[str, Row]:
    """A row a method, and the picture of all."""
    found = WORLDS[world](methods)
    ((target, answers),) = found.estimates.items()
    truth = found.truth[target]
    if methods == ASKED[world]:
        draw(found, world, truth["value"])
    return {
        method: {
            "world": world,
            "policy": target,
            "method": method,
            "value": e.value,
            "honest": None if e.budget is None else [e.budget.honest.low, e.budget.honest.high],
            "chance": None if e.interval is None else [e.interval.low, e.interval.high],
            "verdict": e.verdict,
            "decision": None if not found.differences else found.differences[target][method].decision,
            "truth": truth["value"],
            "truth_error": truth.get("standard_error", 0.0),
            "logged": None if found.logged is None else found.logged.value,
        }
        for method, e in answers.items()
    }


def draw(found: Comparison, world: str, truth: float) -> None:
    axes = found.plot()
    axes.axvline(truth, color="#c2410c", linewidth=1.5)
    axes.set_title(f"{world}: orange is the truth", loc="left", fontsize=10)
    PICTURES.mkdir(parents=True, exist_ok=True)
    axes.figure.savefig(PICTURES / f"{short(world)}.png", dpi=80)


def short(world: str) -> str:
    return world.lower().replace(" ", "-")


def main(words: Sequence[str]) -> None:
    for world in [world for world in WORLDS if not words or short(world) == words[0]]:
        asked = {name: method for name, method in ASKED[world].items() if not words[1:] or name in words[1:]}
        made = rows(world, asked)
        STUDY.run([(world, method) for method in made], lambda _, method, made=made: made[method], again=True)


if __name__ == "__main__":
    main(sys.argv[1:])
