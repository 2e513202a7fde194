"""The error budget: everything that can make the number wrong, in the reward's own unit, added up.

    V - V^ = E[sum_t discount^t (T Q^ - Q^)(s_t, a_t)]        under the policy

so an error of V^ is an error of sampling, or a Bellman error where the policy goes. The entries measure both,
each in its own way and none of them perfectly; they overlap, so they are no independent variances. Their
plain sum times one multiplier per method is the half width of the honest interval; the multipliers are made
by bcrl_bench.proving.calibrate on families of worlds that are not those they are judged on.

What follows from honest intervals are decisions: better, worse or cannot tell.

    reach of a difference = z_k / z_1 * hypot(reach of the one, reach of the other)

z_k is the normal quantile of 1 - 0.025 / k (Bonferroni): of k policies compared, all intervals hold together
with the 95 % that one alone would have. The reach of a value is its honest half width; the logged policy's
value is a mean of returns that were seen, so its reach is that of sampling. A value beyond every logged
return may be far too small, hence the weight of that entry; that it is too large counts the excess once only:
on the log's side of it there is what was seen.

The highest of several estimates is too high on average, because it was chosen. With the estimates V^_i as the
truth and independent normal errors e_i as wide as the honest intervals, the winner's mean error is

    surplus = sum_i E[e_i; i wins] = sum_i E[e_i prod_{j != i} Phi((V^_i + e_i - V^_j) / sigma_j)]

which the winner's value is shrunk by. Errors that the policies share would make it smaller.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources

import numpy as np
from scipy import stats

from bcrl.comparison import Choice, Comparison, Decision, Difference
from bcrl.estimate import Budget, Check, Entry, Estimate, FloatArray, Interval, Status
from bcrl.inference.contrast import half_width
from bcrl.inference.evidence import ALIKE, Evidence, measured
from bcrl.inference.intervals import quantile
from bcrl.question import Question, Target

LEAST_ROWS = 30  # transitions below which no view can say anything

FLOOR = 0.01  # of the scale: no value is known better than that
_MOST = 2.0  # of the scale: what an entry counts at most
# The policy's steps may lie three times as far from logged ones as logged episodes do from each other; each
# such distance more counts as a tenth of the scale.
_FAR, _NOVEL = 3.0, 0.1
# The excess of a value over every logged return counts that many times, since the truth may lie much further
# out; on the log's side once (`_reach`). Chosen on the design families.
BEYOND = 5.0
# Where every logged episode earned exactly the same, nothing shows what a difference would do: all that an
# entry can count. Three tenths are distrust as well, but of the nine such values of the proving ground, all
# in the maze, five were off by 86 to 192 %.
_SAME = _MOST
# Earlier actions explain at most 0.04 in fifteen Markov families of the proving ground, and 0.2 to 0.96 where
# rewards depend on the past or on a hidden cause.
_PAST = 0.15
_USUAL = 1.0 - ALIKE  # of logged actions themselves is called unlike
_LEVEL = 0.95  # that the multipliers were made for, and that verdicts and decisions are about
_ERRORS = np.linspace(-8.0, 8.0, 1601)  # in standard deviations: where a winner's mean error is summed

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
    """One policy's estimates with their budgets. The views of the log are made once for all methods; an
    answer that came with its budget keeps it.
    """
    bare = [name for name, answer in answers.items() if answer.budget is None]
    if len(question.dataset) < LEAST_ROWS or not bare:
        return dict(answers)
    evidence = Evidence.of(question, target)
    made = {name: _with_budget(answers[name], evidence, question, target) for name in bare}
    return {name: made.get(name, answer) for name, answer in answers.items()}


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
    together = seen["consensus"] if math.isfinite(seen["consensus"]) else value
    corrections = [abs(n) for name, n in seen.items() if name.startswith("correction ")]
    beyond = max(value - seen["highest_return"], seen["lowest_return"] - value, 0.0)
    entries = {
        "sampling": 0.0 if standard_error is None else quantile(_LEVEL) * standard_error,
        "Bellman error": float(np.median(corrections or list(gaps.values()))),
        "other views": float(np.median(list(gaps.values()))) + abs(together - value),
        "beyond the log": BEYOND * beyond,
        "unlike places": _NOVEL * max(seen["novelty"] - _FAR, 0.0) * seen["scale"],
        "unlike actions": max(seen["unsupported"] - _USUAL, 0.0) / (1.0 - _USUAL) * seen["scale"],
        "no contrast": _SAME * scale if seen["return_spread"] <= 1e-9 * seen["scale"] else 0.0,
        "floor": FLOOR * scale,
    }
    return {name: min(amount, _MOST * scale) for name, amount in entries.items()}


def with_decisions(comparison: Comparison) -> Comparison:
    """The comparison with a decision in every difference, and the winner by each method."""
    logged, compared = comparison.logged, len(comparison.estimates)
    if logged is None:
        differences = dict(comparison.differences)
    else:
        differences = {
            policy: {
                method: decided(difference, comparison.estimates[policy][method], logged, compared)
                for method, difference in row.items()
            }
            for policy, row in comparison.differences.items()
        }
    choices = _choices(comparison) if compared > 1 else {}
    return replace(comparison, differences=differences, choices=choices)


def _choices(comparison: Comparison) -> dict[str, Choice]:
    rows = {
        method: {policy: row[method] for policy, row in comparison.estimates.items() if method in row}
        for method in comparison.methods
    }
    return {method: chosen for method, row in rows.items() if (chosen := choice(row)) is not None}


def decided(difference: Difference, estimate: Estimate, base: Estimate, compared: int) -> Difference:
    """The difference `estimate` minus `base` with its decision.

    Without one where the estimate has no budget or the base no interval. A value that must not be believed
    whatever its interval (diverged, a fault of the log) decides nothing.

    Args:
        difference: what was measured.
        estimate: a policy's.
        base: the logged policy's, or another policy's.
        compared: number of policies among which this is one.
    """
    ours, theirs = _reach(estimate), _reach(base)
    if estimate.budget is None or ours is None or theirs is None:
        return difference
    if not (_sound(estimate) and _sound(base)):
        return replace(difference, decision="cannot tell")
    down, up = math.hypot(ours[0], theirs[1]), math.hypot(ours[1], theirs[0])
    wider, value = stretch(compared), difference.value
    honest = Interval(value - wider * down, value + wider * up, _LEVEL)
    decision: Decision = "better" if honest.low > 0.0 else "worse" if honest.high < 0.0 else "cannot tell"
    near = max((down if value > 0.0 else up) / quantile(_LEVEL), math.ulp(0.0))
    return replace(
        difference, decision=decision, probability=float(stats.norm.cdf(value / near)), honest=honest
    )


def _reach(estimate: Estimate) -> tuple[float, float] | None:
    """How far the value may lie too high, and how far too low; None without an interval."""
    half = half_width(estimate)
    if half is None or estimate.budget is None:
        return None if half is None else (half, half)
    entries = estimate.budget.entries
    beyond = sum(entry.amount for entry in entries if entry.name == "beyond the log")
    share = beyond / max(sum(entry.amount for entry in entries), math.ulp(0.0))
    near = half * (1.0 - (1.0 - 1.0 / BEYOND) * share)
    low = estimate.value < estimate.stats.get("evidence/lowest_return", -math.inf)
    return (half, near) if low else (near, half)


def choice(estimates: Mapping[str, Estimate]) -> Choice | None:
    """The winner of several policies by one method; None where fewer than two can be compared."""
    known = {name: e for name, e in estimates.items() if e.budget is not None and _sound(e)}
    if len(known) < 2:
        return None
    ranked = sorted(known, key=lambda name: -known[name].value)
    values = np.array([known[name].value for name in ranked])
    halves = np.array([half_width(known[name]) for name in ranked], dtype=np.float64)
    wins, surplus = _chosen_by_chance(values, halves / quantile(_LEVEL))
    widest = stretch(len(estimates))
    pairs = {
        name: {
            other: decided(
                Difference(known[name].value - known[other].value), known[name], known[other], len(estimates)
            )
            for other in ranked[position + 1 :]
        }
        for position, name in enumerate(ranked[:-1])
    }
    return Choice(
        winner=ranked[0],
        value=float(values[0] - surplus),
        surplus=surplus,
        lower_bound=float(values[0] - widest * halves[0]),
        best={name: float(share) for name, share in zip(ranked, wins, strict=True)},
        pairs=pairs,
    )


def stretch(compared: int) -> float:
    """z_k / z_1: what makes a 95 % interval hold for all of k policies together."""
    return quantile(1.0 - (1.0 - _LEVEL) / compared) / quantile(_LEVEL)


def _chosen_by_chance(values: FloatArray, errors: FloatArray) -> tuple[FloatArray, float]:
    """Each one's probability of being the highest, and the mean error of the one that is."""
    errors = np.maximum(errors, 1e-12 * max(float(np.abs(values).max()), 1.0))
    weights = stats.norm.pdf(_ERRORS) * (_ERRORS[1] - _ERRORS[0])
    wins, surplus = np.zeros(len(values)), 0.0
    for one in range(len(values)):
        others = np.arange(len(values)) != one
        above = (values[one] + errors[one] * _ERRORS)[:, None] - values[others]
        won = weights * stats.norm.cdf(above / errors[others]).prod(axis=1)
        wins[one] = won.sum()
        surplus += float(errors[one] * (won @ _ERRORS))
    return wins / wins.sum(), surplus


def _sound(estimate: Estimate) -> bool:
    """Whether the honest interval is the only reason for doubt."""
    ended = math.isfinite(estimate.value) and estimate.status not in (Status.DIVERGED, Status.DEGENERATE)
    return ended and not any(check.binding and check.verdict == "distrust" for check in estimate.checks)
