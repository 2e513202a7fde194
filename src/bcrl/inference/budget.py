"""The error budget: everything that can make the number wrong, in the reward's own unit, added up.

    V - V^ = E[sum_t discount^t (T Q^ - Q^)(s_t, a_t)]        under the policy

so an error of V^ is an error of sampling, or a Bellman error where the policy goes. The entries measure both,
each in its own way and none of them perfectly; they overlap, so they are no independent variances. Their
plain sum times one multiplier per method is the half width of the honest interval; the multipliers are made
by bcrl_bench.proving.calibrate on families of worlds that are not those they are judged on.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources

import numpy as np

from bcrl.estimate import Budget, Check, Entry, Estimate, Interval
from bcrl.inference.evidence import Evidence, measured
from bcrl.inference.intervals import quantile
from bcrl.question import Question, Target

LEAST_ROWS = 30  # transitions below which no view can say anything

FLOOR = 0.01  # of the scale: no value is known better than that
_MOST = 2.0  # of the scale: what an entry counts at most
# The policy's steps may lie three times as far from logged ones as logged episodes do from each other; each
# such distance more counts as a tenth of the scale.
_FAR, _NOVEL = 3.0, 0.1
# The excess of a value over every logged return counts that many times, since the truth may lie much further
# out; on the log's side once (decision.py). Chosen on the design families, like _SAME.
BEYOND = 5.0
# Where every logged episode earned exactly the same, nothing shows what a difference would do: of the scale.
_SAME = 0.3
# Earlier actions explain at most 0.04 in fifteen Markov families of the proving ground, and 0.2 to 0.96 where
# rewards depend on the past or on a hidden cause.
_PAST = 0.15
_LEVEL = 0.95  # that the multipliers were made for, and that verdicts are about

# What each entry says, and what would make it smaller.
_WORDS = {
    "sampling": (
        "Chance alone, with this many episodes, moves the value by {amount} ({share}).",
        "Four times as many episodes halve it.",
    ),
    "Bellman error": (
        "Where the policy goes, independent views of the log would correct the value by {amount} ({share}).",
        "Train longer, use more features, or log more of the states that the policy visits.",
    ),
    "other views": (
        "Simple methods that share nothing with this one differ from it by {amount} ({share}).",
        "Compare several methods; more episodes bring them together where they only lack data.",
    ),
    "beyond the log": (
        "The value lies beyond what any logged episode earned; that counts as {amount} ({share}).",
        "Log some episodes of the policy, or of one that lies between it and the logged one.",
    ),
    "unlike places": (
        "{amount} ({share}) rests on places that no logged episode has seen.",
        "Log episodes that go where the policy would go, for instance some of its own.",
    ),
    "unlike actions": (
        "Where the policy acts unlike anything logged nearby, {amount} ({share}) is a guess.",
        "Log such actions at such states, or let the logged policy act there.",
    ),
    "no contrast": (
        "Every logged episode earned exactly the same, so nothing shows what would earn more or less; "
        "that counts as {amount} ({share}).",
        "Log episodes that end differently, for instance by acting differently now and then.",
    ),
    "floor": (
        "No value is taken to be known better than {amount} ({share}).",
        "Nothing makes this smaller.",
    ),
}


def with_budgets(answers: Mapping[str, Estimate], question: Question, target: Target) -> dict[str, Estimate]:
    """One policy's estimates with their budgets. The views of the log are made once for all methods."""
    if len(question.dataset) < LEAST_ROWS:
        return dict(answers)
    evidence = Evidence.of(question, target)
    return {name: _with_budget(answer, evidence, question, target) for name, answer in answers.items()}


def _with_budget(answer: Estimate, evidence: Evidence, question: Question, target: Target) -> Estimate:
    """The estimate with its budget; its own checks no longer bind the verdict where there is one."""
    seen = replace(answer, stats={**answer.stats, **measured(answer, evidence, question, target)})
    budget = budget_of(seen)
    if budget is None:
        return seen
    own = tuple(replace(check, binding=False) for check in seen.checks)
    return replace(
        seen, budget=budget, checks=own if evidence.past <= _PAST else (_not_markov(evidence.past), *own)
    )


def _not_markov(share: float) -> Check:
    meaning = (
        f"Earlier actions explain {share:.0%} of what the present leaves open in the reward: the observation "
        "does not hold all that matters, or something hidden drove both actions and rewards. "
        "Log what is missing, for instance the last actions."
    )
    return Check("effects of the past", share, _PAST, "distrust", meaning)


def budget_of(estimate: Estimate) -> Budget | None:
    """The budget of an estimate whose `stats` hold the evidence; None without a value or evidence."""
    entries = entries_of(estimate.stats, estimate.value, estimate.standard_error)
    if not entries:
        return None
    scale = float(estimate.stats["evidence/scale"])
    level = _LEVEL if estimate.interval is None else estimate.interval.level
    factor = multiplier_of(estimate.method)
    stretch = factor * quantile(level) / quantile(_LEVEL)
    half = stretch * sum(entries.values())
    size = max(abs(estimate.value), scale)
    lines = [
        Entry(
            name,
            stretch * amount,
            _WORDS[name][0].format(amount=f"{stretch * amount:.3g}", share=f"{stretch * amount / size:.0%}"),
            _WORDS[name][1],
        )
        for name, amount in sorted(entries.items(), key=lambda item: -item[1])
        if amount > 0.0
    ]
    around = Interval(estimate.value - half, estimate.value + half, level)
    return Budget(tuple(lines), around, scale, factor)


def multiplier_of(method: str) -> float:
    """The proving ground's multiplier of a method, by its text; `other` for one that it does not know."""
    table = multipliers()
    parts = re.match(r"\w+(?:\(\w+)?", method)
    kind = parts.group() if parts else ""
    for name in (kind, kind.partition("(")[0]):
        if name in table:
            return table[name]
    return table["other"]


@cache
def multipliers() -> dict[str, float]:
    """By method, from the JSON beside this file, which says how it was made."""
    text = (resources.files("bcrl.inference") / "multipliers.json").read_text(encoding="utf-8")
    return {name: float(value) for name, value in json.loads(text)["multipliers"].items()}


def entries_of(numbers: Mapping[str, float], value: float, standard_error: float | None) -> dict[str, float]:
    """The entries before the multiplier, by name, in the reward's unit; empty without a value.

    Args:
        numbers: the estimate's `stats`, with what `evidence.measured` added.
        value: the estimate.
        standard_error: its sampling error; None where the method has none.
    """
    seen = {name.removeprefix("evidence/"): n for name, n in numbers.items() if name.startswith("evidence/")}
    if not seen or not math.isfinite(value):
        return {}
    scale = max(abs(value), seen["scale"])
    gaps = {name: abs(n - value) for name, n in seen.items() if name.startswith("view ")}
    corrections = [abs(n) for name, n in seen.items() if name.startswith("correction ")]
    beyond = max(value - seen["highest_return"], seen["lowest_return"] - value, 0.0)
    entries = {
        "sampling": 0.0 if standard_error is None else quantile(_LEVEL) * standard_error,
        "Bellman error": float(np.median(corrections or list(gaps.values()))),
        "other views": float(np.median(list(gaps.values()))),
        "beyond the log": BEYOND * beyond,
        "unlike places": _NOVEL * max(seen["novelty"] - _FAR, 0.0) * seen["scale"],
        "unlike actions": seen["unsupported"] * seen["scale"],
        "no contrast": _SAME * scale if seen["return_spread"] <= 1e-9 * seen["scale"] else 0.0,
        "floor": FLOOR * scale,
    }
    return {name: min(amount, _MOST * scale) for name, amount in entries.items()}
