"""Time until the value is within 10 % of the truth and stays there: our default against d3rlpy's FQE.

    python -m bcrl_bench.speed.run ten_percent

Three design worlds of the proving ground with exact or simulated truths; of each the first case, in the
ground's own order, about the whole future under another policy than the one that logged, with 3,000 rows or
more and a discount of at most 0.97, beyond which d3rlpy takes minutes. d3rlpy trains with its defaults
(batches of 100, a target network renewed every 100 steps); its value is looked at every 250 steps, and
neither looking nor asking the policy counts. Ours answers once; asking the policy counts, and the error
budget does.
"""

import math
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bcrl
from bcrl_bench.proving.family import load_family
from bcrl_bench.proving.ground import PreparedCase, prepare
from bcrl_bench.proving.profile import ordered_cases
from bcrl_bench.proving.regimes import Case, table_of
from bcrl_bench.speed.clock import row
from bcrl_bench.speed.fqe import d3rlpy

WORLDS = ("tabular", "lqr", "nonlinear_lqr")
NEAR, EVERY, FEWEST_ROWS, DISCOUNT = 0.1, 250, 3_000, 0.97
# A constant error fades by the discount at every renewal of d3rlpy's target network, every 100 steps; five
# times the steps that divide it by e.
RENEWALS, LEAST = 5, 10_000


def case_of(world: str) -> Case:
    """The case that this world is measured on."""
    return next(
        case
        for case in ordered_cases(world)
        if case.horizon is None
        and case.discount <= DISCOUNT
        and case.target != "itself"
        and case.regime != "nearly_random"
        and case.episodes * load_family(world).length >= FEWEST_ROWS
    )


def arrival(curve: list[tuple[float, float]], truth: float) -> float:
    """The time from which all values of a curve of (time, value) are within 10 % of the truth; else inf."""
    found = math.inf
    for seconds, value in reversed(curve):
        if not abs(value - truth) <= NEAR * abs(truth):
            break
        found = seconds
    return found


def ours(prepared: PreparedCase, method: str | None = None) -> list[tuple[float, float]]:
    """One point: core-seconds of an answer, the default's unless a method is named, and its value."""
    torch.set_num_threads(1)
    began = time.process_time()
    answer = bcrl.evaluate(prepared.dataset, prepared.policy, discount=prepared.case.discount, method=method)
    return [(time.process_time() - began, answer.value)]


def theirs(prepared: PreparedCase) -> list[tuple[float, float]]:
    """Core-seconds and value after every 250 steps."""
    discount = prepared.case.discount
    steps = max(LEAST, round(RENEWALS * 100 / (1.0 - discount)))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.npz"
        np.savez(log, **arrays_of(prepared))
        return [(float(t), float(v)) for t, v in d3rlpy("curve", log, steps, EVERY, discount)["curve"]]


def arrays_of(prepared: PreparedCase) -> dict[str, Any]:
    """The log as d3rlpy wants it, and the policy as what it does at every observation of the log."""
    data = prepared.dataset
    seen = data.natural(data.observe(np.arange(len(data) + data.num_episodes)))
    policy = prepared.policy
    does = table_of(policy, seen, data.num_actions) if data.num_actions else policy.act(seen)
    return {
        "observations": np.asarray(seen, dtype=np.float32)[data.rows],
        "actions": data.actions,
        "rewards": data.rewards.astype(np.float32),
        "terminated": data.terminated,
        "truncated": data.truncated,
        "starts": np.asarray(seen, dtype=np.float32)[data.start_rows],
        "seen": np.asarray(seen, dtype=np.float32),
        "does": np.asarray(does, dtype=np.float32),
    }


def measure(worlds: tuple[str, ...] = WORLDS, method: str | None = None) -> dict[str, dict[str, object]]:
    """Both on every world, by turns; the world of the median ratio stands for all."""
    found: dict[str, dict[str, Any]] = {}
    for world in worlds:
        with tempfile.TemporaryDirectory() as cache:
            found[world] = compare(prepare(case_of(world), Path(cache)), method)
            print(world, found[world], flush=True)
    return {"time_to_ten_percent_vs_d3rlpy": summary(found) | {"method": method or "the default"}}


def compare(prepared: PreparedCase, method: str | None = None) -> dict[str, Any]:
    """When both sides arrive on one world; None where one never does."""
    truth = prepared.truth.value
    curves = {"ours": ours(prepared, method), "reference": theirs(prepared)}
    times = {side: arrival(curve, truth) for side, curve in curves.items()}
    # Who never arrives was asked for this long; ours answers once, so a wrong answer never arrives.
    longest = curves["reference"][-1][0]
    return {
        "ratio": min(times["reference"], longest) / times["ours"],
        "seconds": {side: None if math.isinf(t) else round(t, 2) for side, t in times.items()},
        "values": {side: round(curve[-1][1], 4) for side, curve in curves.items()},
        "truth": round(truth, 4),
        "reference_ran_for": round(longest, 1),
    }


def summary(found: dict[str, dict[str, Any]]) -> dict[str, object]:
    """The row of results/bench.json."""
    middle = sorted(found.values(), key=lambda one: one["ratio"])[len(found) // 2]
    seconds = {side: middle["seconds"][side] or math.inf for side in ("ours", "reference")}
    unit = "core-seconds, on the world of the median ratio"
    return row(seconds["ours"], seconds["reference"], middle["ratio"], unit, worlds=found)
