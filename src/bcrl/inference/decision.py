"""Decisions: better, worse or cannot tell, as far as the honest intervals of two values reach.

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

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from scipy import stats

from bcrl.comparison import Choice, Comparison, Decision, Difference
from bcrl.estimate import Estimate, FloatArray, Interval, Status
from bcrl.inference.budget import BEYOND
from bcrl.inference.contrast import half_width
from bcrl.inference.intervals import quantile

_LEVEL = 0.95
_ERRORS = np.linspace(-8.0, 8.0, 1601)  # in standard deviations: where the integrals above are summed


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
