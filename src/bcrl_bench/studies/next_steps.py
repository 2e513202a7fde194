"""Bounds, guarded policies and improvement on 60 named cases of the proving ground, and 1,000 trials.

    python -m bcrl_bench.studies.next_steps --cache .bcrl/proving

writes results/next_steps.json as it goes; run again, it goes on. The methods were mended on the first five
cases of each design family; reported are five later ones of these and of calibration families that nobody
looked at, without a horizon (which makes every view ten times as slow). Logs are cut to whole episodes of
about 1,500 rows and nothing is trained but the features that improvement learns, so that all of it takes well
under six core-hours.
"""

import argparse
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.data.dataset import Dataset
from bcrl.data.select import some_episodes
from bcrl.data.storage.folder import write_json
from bcrl.estimate import TRUST_WIDTH
from bcrl.estimators.consensus import Consensus
from bcrl.estimators.lspe.method import LSPE
from bcrl.inference.contrast import discounted_returns, unseen_share
from bcrl.inference.intervals import quantile
from bcrl.next_steps.guard import guard
from bcrl.next_steps.improve import improve
from bcrl.next_steps.trial import running_interval
from bcrl.representations.fixed import RandomFeatures
from bcrl_bench.proving.family import load_family
from bcrl_bench.proving.ground import PreparedCase, prepare
from bcrl_bench.proving.profile import ordered_cases, set_of
from bcrl_bench.proving.regimes import Case, loggers, policy_of
from bcrl_bench.proving.world import Step, play
from bcrl_bench.repository import RESULTS
from bcrl_bench.studies.study import Row, Study

FAMILIES = (
    *("tabular", "lqr", "nonlinear_lqr", "low_rank", "chain"),
    *("bandit", "hopper_toy", "inventory", "maze", "noise_slowed", "oscillator", "toy_patient"),
)
FIRST, CASES = 5, 5  # of each family, in the proving ground's order
DIAL = (0.5,)
METHOD = Consensus()
LEARNER = LSPE(RandomFeatures(dim=100, widths=(0.7, 1.4)))  # V(s) for improvement; Consensus has none
ROWS, ROLLOUTS, TRIALS, LONGEST = 1_500, 100, 1_000, 460
LEFT = 0.01  # of the discounted future, where a rollout may stop
COMMAND = "python -m bcrl_bench.studies.next_steps"


@dataclass(frozen=True, eq=False)
class Acting:
    """A policy that acts; nobody asks for the density of its actions."""

    policy: Any
    reads: None = None

    def sample(self, observations: Any, generator: np.random.Generator) -> Any:
        return self.policy.sample(observations, generator)

    def log_prob(self, observations: Any, actions: Any) -> Any:
        del observations
        return np.full(len(actions), np.nan)


def simulated(case: Case, policy: Any) -> float:
    """What a policy truly earns, by rollouts."""
    family = load_family(case.family)
    world = family.make(case.world)
    longest = min(case.horizon or family.longest, family.longest, LONGEST)
    if 0.0 < case.discount < 1.0:
        longest = min(longest, math.ceil(math.log(LEFT) / math.log(case.discount)))
    rewards = np.zeros((ROLLOUTS, longest), dtype=np.float32)

    def visit(step: Step) -> None:
        rewards[step.alive, step.time] = step.rewards

    rng = np.random.default_rng(3)
    acting = policy if hasattr(policy, "probabilities") else Acting(policy)
    play(world, acting, world.start(ROLLOUTS, rng), longest, rng, visit=visit)
    weights = case.discount ** np.arange(longest)
    return float((rewards @ weights).mean())


def logged_truth(prepared: PreparedCase) -> float:
    """What the logging policies truly earn: the log's mean, or by rollouts where its records stop early."""
    case, log = prepared.case, prepared.dataset
    if unseen_share(log, case.discount, case.horizon) < 0.02:
        return float(discounted_returns(log, case.discount, case.horizon).mean())
    family = load_family(case.family)
    world = family.make(case.world)
    names = loggers(case.regime, case.policy)
    return float(np.mean([simulated(case, policy_of(family, world, name)) for name in names]))


def own_width(log: Dataset, case: Case, scale: float) -> float:
    """How well the log knows its own policy, as a share of the scale: no guarded form is known better."""
    found = discounted_returns(log, case.discount, case.horizon)
    half = quantile(0.95) * float(found.std()) / math.sqrt(len(found))
    return half / max(abs(float(found.mean())), scale)


def row_of(prepared: PreparedCase) -> Row:
    """One case: bounds, the guarded policy, the improved one, each with the simulator's answer."""
    case, log = prepared.case, prepared.dataset
    if len(log) > ROWS:
        log = some_episodes(log, ROWS, 0).dataset
    asked: dict[str, Any] = {"discount": case.discount, "horizon": case.horizon}
    found = guard(log, prepared.policy, thresholds=DIAL, method=METHOD, **asked)
    chosen, plain = found.chosen, found.dial[-1]
    if np.isinf(chosen.threshold):  # the new policy itself is trusted; what a guard would do is still asked
        chosen = found.dial[-2]
    guarded = simulated(case, replace(found.policy, threshold=chosen.threshold))
    better = improve(log, {"new": prepared.policy}, method=LEARNER, **asked)
    logged = logged_truth(prepared)
    return {
        "set": set_of(case.family),
        "mark": prepared.mark["mark"],
        "truth": prepared.truth.value,
        "scale": prepared.scale,
        "logged": logged,
        "logged_width": own_width(log, case, prepared.scale),
        "low": found.bounds.low,
        "high": found.bounds.high,
        "vacuous": found.bounds.vacuous.high - found.bounds.vacuous.low,
        "known": found.bounds.known,
        "within": found.bounds.within,
        "plain": [plain.estimate.value, plain.estimate.verdict, plain.decision],
        "threshold": chosen.threshold,
        "guarded": [chosen.estimate.value, chosen.verdict, chosen.decision],
        "followed": chosen.followed,
        "guarded_true": guarded,
        "blend": found.blend,
        "logged_value": None if found.logged is None else found.logged.value,
        "improved": better.improved,
        "improved_at_least": better.at_least if math.isfinite(better.at_least) else None,
        "improved_true": simulated(case, better.policy) if better.improved else logged,
    }


def trial_errors() -> dict[str, float]:
    """Share of trials in which the running interval, watched after every episode, once left out the mean."""
    rng, missed = np.random.default_rng(0), {"bounded": 0, "unbounded": 0}
    for _ in range(TRIALS):
        kinds: dict[str, Any] = {
            "bounded": ((rng.random(200) < 0.3) * 1.0, (0.0, 1.0), 0.3),
            "unbounded": (rng.standard_normal(200), None, 0.0),
        }
        for name, (x, bounds, mean) in kinds.items():
            around = running_interval(x, bounds, 0.95)
            missed[name] += not around.low <= mean <= around.high
    return {name: count / TRIALS for name, count in missed.items()}


def summary(rows: list[Row]) -> dict[str, Any]:
    """Every share with its count."""
    known = [r for r in rows if r["known"]]
    partly = [r for r in known if r["mark"] == "partly"]
    widths = [(r["high"] - r["low"]) / max(r["vacuous"], 1e-12) for r in partly]
    least = [min(r["truth"], r["logged"]) for r in rows]
    better = [r for r in rows if r["guarded"][2] == "better"]
    doubted = [r for r in rows if r["plain"][1] == "distrust"]
    gains = [r for r in rows if r["mark"] == "covered" and r["truth"] > r["logged"] + 0.1 * r["scale"]]
    return {
        "cases": len(rows),
        "bounds_hold": {
            **share([r["low"] <= r["truth"] <= r["high"] for r in known]),
            "withheld": len(rows) - len(known),
        },
        "bounds_width": {
            "median of vacuous": float(np.median(widths)) if widths else None,
            "count": len(widths),
        },
        "guarded_safe": share(
            [r["guarded_true"] >= low - 0.02 * r["scale"] for r, low in zip(rows, least, strict=True)]
        ),
        "guarded_safe_where_better": share(
            [r["guarded_true"] >= r["logged"] - 0.02 * r["scale"] for r in better]
        ),
        "guarded_trusted_right": {
            **share([_trusted_right(r) for r in doubted]),
            "where the log knows its own policy": share(
                [_trusted_right(r) for r in doubted if r["logged_width"] <= TRUST_WIDTH]
            ),
            "or by a blend": float(np.mean([_trusted_right(r) or _blend_right(r) for r in doubted]))
            if doubted
            else None,
        },
        "improve_safe": share([r["improved_true"] >= r["logged"] - 0.02 * r["scale"] for r in rows]),
        "improve_gain": share([r["improved_true"] > r["logged"] for r in gains]),
    }


def _trusted_right(r: Row) -> bool:
    """The guarded form is trusted, follows the new policy at a fifth of its steps, and is right to 10 %."""
    size = max(abs(r["guarded_true"]), r["scale"])
    right = abs(r["guarded"][0] - r["guarded_true"]) <= 0.1 * size
    return bool(r["guarded"][1] == "trust" and r["followed"] >= 0.2 and right)


def _blend_right(r: Row) -> bool:
    """The same of the new policy in the largest trusted share of the episodes, the logged one in the rest."""
    if r["blend"] is None or r["logged_value"] is None or r["blend"] < 0.2:
        return False
    said = r["blend"] * r["plain"][0] + (1.0 - r["blend"]) * r["logged_value"]
    true = r["blend"] * r["truth"] + (1.0 - r["blend"]) * r["logged"]
    return bool(abs(said - true) <= 0.1 * max(abs(true), r["scale"]))


def share(found: list[bool]) -> dict[str, Any]:
    return {"share": float(np.mean(found)) if found else None, "count": len(found)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache", type=Path, default=Path(".bcrl/proving"))
    parser.add_argument("--cases", type=int, default=CASES)
    options = parser.parse_args()
    study = Study("next_steps_cases", COMMAND, ("case",), METHOD)
    asked = {
        name: [c for c in ordered_cases(name)[FIRST:] if c.horizon is None and c.discount <= 0.99]
        for name in FAMILIES
    }
    named = {
        f"{case.family}/{case.regime}-{case.log:02d}/{case.target}": case
        for turn in range(options.cases)
        for case in (asked[name][turn] for name in FAMILIES)
    }

    def make(name: str) -> Row:
        return {"case": name, **row_of(prepare(named[name], options.cache))}

    try:
        rows = study.run([(name,) for name in named], make)
    finally:
        rows = study.rows()
        sets = {name: summary([r for r in rows if r["set"] == name]) for name in ("design", "calibration")}
        found = {"command": COMMAND, "rows": ROWS, "method": repr(METHOD), **summary(rows)}
        trials = {**trial_errors(), "count": TRIALS}
        write_json(RESULTS / "next_steps.json", {**found, "trial_error": trials, "sets": sets})


if __name__ == "__main__":
    main()
