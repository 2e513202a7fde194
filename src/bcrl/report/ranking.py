"""Several policies, ranked by one method: what page and terminal open with."""

import math
from dataclasses import dataclass

from bcrl.comparison import Comparison
from bcrl.estimate import Verdict
from bcrl.report.words import interval_text, signed, value_text, widest


@dataclass(frozen=True)
class Rank:
    """One policy in the ranking, in words."""

    policy: str
    value: str
    interval: str
    best: str
    against: str
    verdict: Verdict


def ranks(table: Comparison) -> list[Rank]:
    """The policies, best first; none where there is nothing to rank."""
    if len(table.policies) < 2:
        return []
    method, order = table.ranking()
    return [_rank(table, policy, method) for policy in order if method in table.estimates[policy]]


def _rank(table: Comparison, policy: str, method: str) -> Rank:
    estimate = table.estimates[policy][method]
    choice = table.choices.get(method)
    best = table.probability_best.get(method, {}) if choice is None else choice.best
    difference = table.differences.get(policy, {}).get(method)
    against = ""
    if difference is not None and math.isfinite(difference.value):
        against = f"{signed(difference.value)}" + (f", {difference.decision}" if difference.decision else "")
    return Rank(
        policy,
        value_text(estimate),
        interval_text(widest(estimate)),
        f"{best[policy]:.0%}" if policy in best and math.isfinite(best[policy]) else "",
        against,
        estimate.verdict,
    )
