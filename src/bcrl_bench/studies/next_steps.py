"""Bounds, guarded policies and improvement on 60 named cases of the proving ground, and 1,000 trials.

    python -m bcrl_bench.studies.next_steps --cache .bcrl/proving

writes results/next_steps.json as it goes; run again, it goes on. Logs are cut to whole episodes of about
1,500 rows and the method is cheap, so that all of it takes well under six core-hours.
"""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.data.select import some_episodes
from bcrl.data.storage.folder import write_json
from bcrl.estimators.lspe.method import LSPE
from bcrl.inference.contrast import discounted_returns
from bcrl.next_steps.guard import guard
from bcrl.next_steps.improve import improve
from bcrl.next_steps.trial import running_interval
from bcrl.representations.fixed import RandomFeatures
from bcrl_bench.proving.family import load_family
from bcrl_bench.proving.ground import PreparedCase, prepare
from bcrl_bench.proving.profile import ordered_cases
from bcrl_bench.proving.regimes import Case
from bcrl_bench.proving.truth import returns
from bcrl_bench.proving.world import Step, play
from bcrl_bench.repository import RESULTS
from bcrl_bench.studies.study import Row, Study

FAMILIES = (
    *("tabular", "lqr", "nonlinear_lqr", "low_rank", "chain"),
    *("bandit", "hopper_toy", "inventory", "maze", "noise_slowed", "oscillator", "toy_patient"),
)
CASES = 5  # of each family
METHOD = LSPE(RandomFeatures(dim=100, widths=(0.7, 1.4)))
ROWS, ROLLOUTS, TRIALS, LONGEST = 1_500, 150, 1_000, 300
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
    rewards = np.zeros((ROLLOUTS, longest), dtype=np.float32)

    def visit(step: Step) -> None:
        rewards[step.alive, step.time] = step.rewards

    rng = np.random.default_rng(3)
    acting = policy if hasattr(policy, "probabilities") else Acting(policy)
    play(world, acting, world.start(ROLLOUTS, rng), longest, rng, visit=visit)
    return float(returns(rewards, case.discount, case.horizon).mean())


def row_of(prepared: PreparedCase) -> Row:
    """One case: bounds, the guarded policy, the improved one, each with the simulator's answer."""
    case, log = prepared.case, prepared.dataset
    if len(log) > ROWS:
        log = some_episodes(log, ROWS, 0).dataset
    asked: dict[str, Any] = {"discount": case.discount, "horizon": case.horizon, "method": METHOD}
    found = guard(log, prepared.policy, thresholds=(1.0,), **asked)
    guarded = simulated(case, replace(found.policy, threshold=1.0))
    better = improve(log, {"new": prepared.policy}, **asked)
    logged = float(discounted_returns(prepared.dataset, case.discount, case.horizon).mean())
    plain = found.dial[-1]
    return {
        "mark": prepared.mark["mark"],
        "truth": prepared.truth.value,
        "scale": prepared.scale,
        "logged": logged,
        "low": found.bounds.low,
        "high": found.bounds.high,
        "vacuous": found.bounds.vacuous.high - found.bounds.vacuous.low,
        "within": found.bounds.within,
        "plain": [plain.estimate.value, plain.verdict],
        "guarded": [found.dial[0].estimate.value, found.dial[0].verdict, found.dial[0].decision],
        "followed": found.dial[0].followed,
        "chosen": found.chosen.threshold if np.isfinite(found.chosen.threshold) else None,
        "guarded_true": guarded,
        "improved": better.improved,
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
    partly = [r for r in rows if r["mark"] == "partly"]
    widths = [(r["high"] - r["low"]) / max(r["vacuous"], 1e-12) for r in partly]
    least = [min(r["truth"], r["logged"]) for r in rows]
    doubted = [r for r in rows if r["plain"][1] == "distrust"]
    right = [
        r["guarded"][1] == "trust"
        and r["followed"] >= 0.2
        and abs(r["guarded"][0] - r["guarded_true"]) <= 0.1 * max(abs(r["guarded_true"]), r["scale"])
        for r in doubted
    ]
    gains = [r for r in rows if r["mark"] == "covered" and r["truth"] > r["logged"] + 0.1 * r["scale"]]
    return {
        "bounds_hold": share([r["low"] <= r["truth"] <= r["high"] for r in rows]),
        "bounds_width": {
            "median of vacuous": float(np.median(widths)) if widths else None,
            "count": len(widths),
        },
        "guarded_safe": share(
            [r["guarded_true"] >= low - 0.02 * r["scale"] for r, low in zip(rows, least, strict=True)]
        ),
        "guarded_trusted_right": share(right),
        "improve_safe": share([r["improved_true"] >= r["logged"] - 0.02 * r["scale"] for r in rows]),
        "improve_gain": share([r["improved_true"] > r["logged"] for r in gains]),
    }


def share(found: list[bool]) -> dict[str, Any]:
    return {"share": float(np.mean(found)) if found else None, "count": len(found)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache", type=Path, default=Path(".bcrl/proving"))
    parser.add_argument("--cases", type=int, default=CASES)
    options = parser.parse_args()
    study = Study("next_steps_cases", COMMAND, ("case",))
    named = {
        f"{case.family}/{case.regime}-{case.log:02d}/{case.target}": case
        for turn in range(options.cases)
        for case in (ordered_cases(name)[turn] for name in FAMILIES)
    }

    def make(name: str) -> Row:
        return {"case": name, **row_of(prepare(named[name], options.cache))}

    try:
        rows = study.run([(name,) for name in named], make)
    finally:
        rows = study.rows()
        found = {"command": COMMAND, "rows": ROWS, "method": repr(METHOD), **summary(rows)}
        write_json(RESULTS / "next_steps.json", {**found, "trial_error": {**trial_errors(), "count": TRIALS}})


if __name__ == "__main__":
    main()
