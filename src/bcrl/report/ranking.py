"""What page and terminal open with: policies ranked by one method, and every policy in every group."""

import math
from dataclasses import dataclass

from bcrl.comparison import Comparison, Difference
from bcrl.estimate import Verdict, worst
from bcrl.report.words import (
    decimals_of,
    half_width,
    interval_text,
    number,
    percent,
    signed,
    value_text,
    widest,
)


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


@dataclass(frozen=True)
class CohortRow:
    """One policy in one cohort, in words."""

    cohort: str
    policy: str
    episodes: str
    value: str
    interval: str
    against: str
    verdict: Verdict
    reason: str


def cohort_rows(table: Comparison) -> list[CohortRow]:
    """Groups, the best policy's before the others', worst first."""
    order = table.ranking()[1] if table.cohorts else []
    return [
        CohortRow(
            row.name,
            row.policy,
            f"{row.episodes:,}",
            number(row.value, decimals_of(half_width(row.interval))),
            interval_text(row.interval),
            against_log(row.difference),
            row.verdict,
            row.reason,
        )
        for row in sorted(table.cohorts, key=lambda row: order.index(row.policy))
    ]


def harmed(table: Comparison, policy: str) -> str:
    """Names of groups in which the policy is worse than what was logged there; empty for none."""
    found = [
        row.name
        for row in table.cohorts
        if row.policy == policy and row.difference is not None and row.difference.decision == "worse"
    ]
    return ", ".join(found)


def verdict_of(table: Comparison, policy: str, method: str) -> Verdict:
    """The verdict on a method's value, weakened where the methods disagree about the policy."""
    doubts = [check.verdict for check in table.checks.get(policy, ())]
    return worst([table.estimates[policy][method].verdict, *doubts])


def against_log(difference: Difference | None) -> str:
    """The difference to the log and its decision; empty where there is none."""
    if difference is None or not math.isfinite(difference.value):
        return ""
    ends = difference.honest or difference.interval
    text = signed(difference.value, decimals_of(half_width(ends)))
    return text + (f", {difference.decision}" if difference.decision else "")


def _rank(table: Comparison, policy: str, method: str) -> Rank:
    estimate, bad = table.estimates[policy][method], harmed(table, policy)
    choice = table.choices.get(method)
    best = table.probability_best.get(method, {}) if choice is None else choice.best
    return Rank(
        policy,
        value_text(estimate),
        interval_text(widest(estimate)),
        percent(best[policy]) if policy in best and math.isfinite(best[policy]) else "",
        against_log(table.differences.get(policy, {}).get(method)) + (f"; worse in {bad}" if bad else ""),
        verdict_of(table, policy, method),
    )
