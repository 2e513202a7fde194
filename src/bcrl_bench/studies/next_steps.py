"""Bounds, guarded policies and improvement on 60 named cases of the proving ground, and 1,000 trials.

    python -m bcrl_bench.studies.next_steps --cache .bcrl/proving --minutes 5

writes results/next_steps.json; run again, it goes on where it stopped. The methods were mended on design
families; reported are five cases of each of these and of calibration families, on which nothing was chosen,
without a horizon (which makes every view ten times as slow). Logs are cut to whole episodes of about 5,000
rows (the page looks at 8,000) and nothing is trained, so that all of it takes well under six core-hours.
"""

import argparse
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.data.dataset import Dataset
from bcrl.data.select import some_episodes
from bcrl.data.storage.folder import write_json
from bcrl.estimate import TRUST_WIDTH, FloatArray
from bcrl.estimators.consensus import Consensus
from bcrl.inference.contrast import discounted_returns
from bcrl.inference.intervals import quantile
from bcrl.next_steps.guard import Setting, guard
from bcrl.next_steps.improve import improve
from bcrl.next_steps.trial import running_interval
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
METHOD = Consensus()
ROWS, TRIALS, LONGEST = 5_000, 1_000, 460
LEFT = 0.01  # of the discounted future, where a rollout may stop
BATCH, MOST_STEPS, LOGGED = 100, 50_000, 2_000  # rollouts at a time, all their steps; of logging policies
SURE, EXACT = 3.0, 0.005  # standard errors from the bar, or a standard error of the scale, that suffice
SAFE = 0.02  # of the scale, that a guarded or improved policy may earn less
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


def returns(case: Case, policy: Any, count: int, seed: int) -> FloatArray:
    """Discounted returns of so many rollouts."""
    family = load_family(case.family)
    world = family.make(case.world)
    longest = steps_of(case)
    rewards = np.zeros((count, longest), dtype=np.float32)

    def visit(step: Step) -> None:
        rewards[step.alive, step.time] = step.rewards

    rng = np.random.default_rng(seed)
    acting = policy if hasattr(policy, "probabilities") else Acting(policy)
    play(world, acting, world.start(count, rng), longest, rng, visit=visit)
    return np.asarray(rewards @ case.discount ** np.arange(longest))


def steps_of(case: Case) -> int:
    """Steps that a rollout takes at most."""
    longest = min(load_family(case.family).longest, LONGEST)
    if 0.0 < case.discount < 1.0:
        longest = min(longest, math.ceil(math.log(LEFT) / math.log(case.discount)))
    return longest


def worth(case: Case, policy: Any, bar: float, scale: float) -> tuple[float, float]:
    """What a policy truly earns, with its standard error: exact in tables, else by rollouts until it is known
    on which side of the bar it lies, or to half a percent of the scale, or they have become too many.
    """
    world = load_family(case.family).make(case.world)
    if hasattr(world, "exact_value") and hasattr(policy, "probabilities"):
        return float(world.exact_value(policy, case.discount, case.horizon)), 0.0
    found = np.zeros(0)
    for batch in range(max(MOST_STEPS // (BATCH * steps_of(case)), 1)):
        found = np.append(found, returns(case, policy, BATCH, 3 + batch))
        error = float(found.std()) / math.sqrt(len(found))
        if abs(float(found.mean()) - bar) > SURE * error or error <= EXACT * scale:
            break
    return float(found.mean()), error


def logged_truth(prepared: PreparedCase) -> float:
    """What the logging policies truly earn."""
    case = prepared.case
    family = load_family(case.family)
    world = family.make(case.world)
    values = []
    for name in loggers(case.regime, case.policy):
        policy = policy_of(family, world, name)
        if name == case.policy:
            values.append(prepared.truth.value)
        elif hasattr(world, "exact_value"):
            values.append(float(world.exact_value(policy, case.discount, case.horizon)))
        else:
            values.append(float(returns(case, policy, LOGGED, 2).mean()))
    return float(np.mean(values))


def dial_row(one: Setting) -> list[Any]:
    """Threshold, share followed, verdict, and half widths: honest for all settings together, and alone."""
    size = 1.0 if one.estimate.budget is None else max(abs(one.estimate.value), one.estimate.budget.scale)
    threshold = None if math.isinf(one.threshold) else one.threshold
    together = None if one.honest is None else (one.honest.high - one.honest.low) / 2.0 / size
    alone = None if one.estimate.budget is None else one.estimate.budget.half / size
    return [threshold, one.followed, one.verdict, together, alone]


def own_width(log: Dataset, case: Case, scale: float) -> float:
    """How well the log knows its own policy, as a share of the scale: no guarded form is known better."""
    found = discounted_returns(log, case.discount, case.horizon)
    half = quantile(0.95) * float(found.std()) / math.sqrt(len(found))
    return half / max(abs(float(found.mean())), scale)


def row_of(prepared: PreparedCase) -> Row:
    """One case: bounds, the guarded policy, the improved one, each with the simulator's answer."""
    case, log, began = prepared.case, prepared.dataset, time.process_time()
    if len(log) > ROWS:
        log = some_episodes(log, ROWS, 0).dataset
    asked: dict[str, Any] = {"discount": case.discount, "horizon": case.horizon}
    found = guard(log, prepared.policy, method=METHOD, **asked)
    chosen, plain = found.chosen, found.dial[-1]
    if np.isinf(chosen.threshold):  # the new policy itself is trusted; what a guard would do is still asked
        chosen = found.dial[-2]
    logged, scale = logged_truth(prepared), prepared.scale
    guarded, guarded_error = worth(
        case,
        replace(found.policy, threshold=chosen.threshold),
        min(prepared.truth.value, logged) - SAFE * scale,
        scale,
    )
    better = improve(log, {"new": prepared.policy}, **asked)
    improved = worth(case, better.policy, logged - SAFE * scale, scale) if better.improved else (logged, 0.0)
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
        "dial": [dial_row(one) for one in found.dial],
        "guarded_true": guarded,
        "guarded_error": guarded_error,
        "blend": found.blend,
        "logged_value": None if found.logged is None else found.logged.value,
        "improved": better.improved,
        "improved_at_least": better.at_least if math.isfinite(better.at_least) else None,
        "improved_true": improved[0],
        "improved_error": improved[1],
        "rows": len(log),
        "core_seconds": round(time.process_time() - began, 1),
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
        "guarded_safe": {
            **share(
                [r["guarded_true"] >= low - SAFE * r["scale"] for r, low in zip(rows, least, strict=True)]
            ),
            "within two standard errors of the rollouts": float(
                np.mean(
                    [
                        r["guarded_true"] + 2.0 * r["guarded_error"] >= low - SAFE * r["scale"]
                        for r, low in zip(rows, least, strict=True)
                    ]
                )
            ),
        },
        "guarded_safe_where_better": share(
            [r["guarded_true"] >= r["logged"] - SAFE * r["scale"] for r in better]
        ),
        "guarded_trusted_right": {
            **share([_trusted_right(r) for r in doubted]),
            "where the log knows its own policy": share(
                [_trusted_right(r) for r in doubted if r["logged_width"] <= TRUST_WIDTH]
            ),
            "right to 10 %, whatever the verdict": share([_right(r) for r in doubted])["share"],
            "or by a blend": float(np.mean([_trusted_right(r) or _blend_right(r) for r in doubted]))
            if doubted
            else None,
        },
        "improve_safe": share([r["improved_true"] >= r["logged"] - SAFE * r["scale"] for r in rows]),
        "improve_gain": share([r["improved_true"] > r["logged"] for r in gains]),
    }


def _trusted_right(r: Row) -> bool:
    """The guarded form is trusted, follows the new policy at a fifth of its steps, and is right to 10 %."""
    return bool(r["guarded"][1] == "trust" and _right(r))


def _right(r: Row) -> bool:
    size = max(abs(r["guarded_true"]), r["scale"])
    return bool(r["followed"] >= 0.2 and abs(r["guarded"][0] - r["guarded_true"]) <= 0.1 * size)


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
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no case after so many")
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

    began = time.monotonic()
    try:
        for name in named:
            if time.monotonic() - began < 60.0 * options.minutes:
                study.run([(name,)], make)
    finally:
        rows = [row for row in study.rows() if row["case"] in named]
        sets = {name: summary([r for r in rows if r["set"] == name]) for name in ("design", "calibration")}
        about = {"command": COMMAND, "named": len(named), "rows": ROWS, "method": repr(METHOD)}
        trials = {**trial_errors(), "count": TRIALS}
        found = {**about, **summary(rows), "trial_error": trials, "sets": sets}
        write_json(RESULTS / "next_steps.json", found)


if __name__ == "__main__":
    main()
