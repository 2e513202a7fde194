"""The first screen: what each policy is worth, how sure we are, whether to believe it, and why."""

import math
from dataclasses import dataclass

from bcrl.comparison import Comparison
from bcrl.estimate import Budget, Estimate, Interval, Status, Verdict
from bcrl.report.axes import Axis
from bcrl.report.budgets import Bar, few_bars
from bcrl.report.first_words import against_logged, next_step
from bcrl.report.ranking import harmed, verdict_of
from bcrl.report.spans import Span, in_sight, shared_axis, span
from bcrl.report.words import (
    choice_sentence,
    decimals_of,
    half_width,
    interval_text,
    level_text,
    number,
    value_text,
    widest,
    width_sentence,
)

_REASONS = 2


@dataclass(frozen=True)
class Row:
    """One method's answer for one policy, as it is drawn.

    Attributes:
        interval: the honest one where there is a budget, else that of sampling.
        span: value and sampling interval.
        honest: the honest interval; None without a budget.
    """

    method: int
    name: str
    verdict: Verdict
    value: str
    interval: str
    span: Span
    honest: Span | None = None

    @property
    def tip(self) -> str:
        """The row under the pointer."""
        interval = f" ({self.interval}{' honest' if self.honest else ''})" if self.interval else ""
        return f"{self.name}: {self.value}{interval}"


@dataclass(frozen=True)
class Answer:
    """One policy: the best supported answer in words, and a row per method.

    Attributes:
        sureness: the sentence on the interval.
        width: the sentence on the honest interval's width, which the verdict follows from; empty without it.
        against_logged: the sentence on the difference to the logged policy; empty when unknown.
        chosen: the sentence for the winner of several policies; empty for others.
        reasons: why the verdict is what it is, the most important first.
        bars: the largest entries of the budget; none without one.
        half: the honest interval's half width in words.
        following: what to do next.
        ranked: the method is the one that ranks several policies.
        truth: position and text of the true value; None when unknown.
    """

    index: int
    policy: str
    method: str
    verdict: Verdict
    value: str
    is_number: bool
    sureness: str
    width: str
    against_logged: str
    chosen: str
    reasons: tuple[str, ...]
    rows: tuple[Row, ...]
    truth: tuple[float, str] | None
    bars: tuple[Bar, ...]
    half: str
    following: str
    ranked: bool

    @property
    def by(self) -> str:
        """Which method gave the answer, and how it was chosen."""
        if len(self.rows) == 1 or self.ranked:
            return f"by {self.method}"
        if all(row.verdict == "distrust" for row in self.rows):
            many = f"all {len(self.rows)} methods"
            budgeted = any(row.honest is not None for row in self.rows)
            return f"by {self.method}; " + (
                f"{many} are distrusted" if budgeted else f"the checks doubt {many}"
            )
        return f"by {self.method}, the best supported of {len(self.rows)} methods"


def value_axis(table: Comparison, method: str = "") -> Axis:
    """One axis for every policy by every method, or by one; with the logged policy and the truth."""
    every = [
        estimate for row in table.estimates.values() for name, estimate in row.items() if method in ("", name)
    ]
    believed = [estimate for estimate in every if in_sight(estimate)]
    doubted = [estimate for estimate in every if not in_sight(estimate)]
    fixed = [known["value"] for known in table.truth.values()]
    logged = [table.logged] if table.logged is not None else []
    return shared_axis(
        [*fixed, *(estimate.value for estimate in [*logged, *believed])],
        [end for estimate in [*logged, *believed] for end in _ends(estimate)],
        [number for estimate in doubted for number in (estimate.value, *_ends(estimate))],
    )


def answers(table: Comparison, on: Axis) -> list[Answer]:
    """An answer per policy, best first; `index` is its place in the comparison."""
    return [_answer(table, table.policies.index(policy), policy, on) for policy in table.ranking()[1]]


def logged_row(table: Comparison, on: Axis) -> Row | None:
    """The logged policy's own row; None when nobody computed its value."""
    logged = table.logged
    if logged is None:
        return None
    drawn = span(logged.value, logged.interval, on)
    name = "logged policy" + (", as recorded" if table.withheld else "")
    return Row(-1, name, "trust", value_text(logged), interval_text(logged.interval), drawn)


def _answer(table: Comparison, index: int, policy: str, on: Axis) -> Answer:
    method, verdict = _speaker(table, policy)
    estimate = table.estimates[policy][method]
    order = {name: position for position, name in enumerate(table.methods)}
    rows = [
        _row(order[name], name, e, e.verdict, on)
        for name, e in sorted(table.estimates[policy].items(), key=lambda item: order[item[0]])
    ]
    return Answer(
        index=index,
        policy=policy,
        method=method,
        verdict=verdict,
        value=value_text(estimate),
        is_number=math.isfinite(estimate.value),
        sureness=_sureness(estimate, verdict),
        width=width_sentence(estimate)
        + (" But the methods disagree." if estimate.budget and verdict != estimate.verdict else ""),
        against_logged=_with_harmed(
            table, policy, table.withheld or against_logged(table, policy, method, verdict)
        ),
        chosen=_chosen(table, policy, method),
        reasons=tuple(_reasons(table, policy, estimate))[:_REASONS],
        rows=tuple(rows),
        truth=_truth(table, policy, on),
        bars=tuple(few_bars(estimate)),
        half="" if estimate.budget is None else _half(estimate.budget.honest),
        following=next_step(table, policy, method),
        ranked=len(table.policies) > 1 and method == table.ranking()[0],
    )


def ranked_rows(table: Comparison, on: Axis) -> list[Row]:
    """A row per policy, best first, all by the one method that ranks them; `method` is the policy's place."""
    method, order = table.ranking()
    return [
        _row(table.policies.index(p), p, table.estimates[p][method], verdict_of(table, p, method), on)
        for p in order
        if method in table.estimates[p]
    ]


def _row(index: int, name: str, estimate: Estimate, verdict: Verdict, on: Axis) -> Row:
    return Row(
        index,
        name,
        verdict,
        value_text(estimate),
        interval_text(widest(estimate)),
        span(estimate.value, estimate.interval, on),
        None if estimate.budget is None else span(estimate.value, estimate.budget.honest, on),
    )


def _speaker(table: Comparison, policy: str) -> tuple[str, Verdict]:
    """Who speaks for a policy: of several the method that ranks them all, or the page would mix methods."""
    ranked = table.ranking()[0]
    if len(table.policies) > 1 and ranked in table.estimates[policy]:
        return ranked, verdict_of(table, policy, ranked)
    return table.headline(policy)


def _half(honest: Interval) -> str:
    half = half_width(honest)
    return number(half, decimals_of(half))


def _chosen(table: Comparison, policy: str, method: str) -> str:
    choice = table.choices.get(method)
    return "" if choice is None or choice.winner != policy else choice_sentence(choice, len(table.policies))


def _ends(estimate: Estimate) -> tuple[float, ...]:
    known = [estimate.interval, None if estimate.budget is None else estimate.budget.honest]
    return tuple(end for one in known if one is not None for end in (one.low, one.high))


def _sureness(estimate: Estimate, verdict: Verdict) -> str:
    interval = estimate.interval
    if estimate.status is Status.DIVERGED or not math.isfinite(estimate.value):
        return estimate.status.meaning
    if estimate.budget is not None:
        return _honest_sureness(estimate.budget, interval)
    if interval is None or math.isnan(interval.low) or math.isnan(interval.high):
        return "This method gives no interval, so it cannot say how sure it is."
    decimals = decimals_of(half_width(interval))
    low, high = number(interval.low, decimals), number(interval.high, decimals)
    if verdict == "distrust":
        return f"Its interval, {low} to {high}, counts sampling error only, and the checks doubt it."
    return f"Between {low} and {high} with {level_text(interval)} confidence."


def _honest_sureness(budget: Budget, sampling: Interval | None) -> str:
    honest = budget.honest
    decimals = decimals_of(half_width(honest))
    text = (
        f"Between {number(honest.low, decimals)} and {number(honest.high, decimals)} with everything "
        f"counted ({level_text(honest)})"
    )
    if sampling is None or math.isnan(sampling.low) or math.isnan(sampling.high):
        return text + "."
    return text + f"; {number(sampling.low, decimals)} to {number(sampling.high, decimals)} by chance alone."


def _with_harmed(table: Comparison, policy: str, text: str) -> str:
    """The sentence on the log, and the groups that would lose by the policy."""
    bad = harmed(table, policy)
    return f"{text} Worse in {bad}.".strip() if bad else text


def _reasons(table: Comparison, policy: str, estimate: Estimate) -> list[str]:
    disagreements = [check.meaning for check in table.checks.get(policy, ()) if check.verdict != "trust"]
    # The page already says that it blew up; that it ended as planned is not worth a line.
    told = estimate.status not in (Status.LIMIT, Status.DEGENERATE)
    own = [reason for reason in estimate.reasons if not (told and estimate.status.meaning in reason)]
    if estimate.budget is not None:
        drawn = {f"{entry.meaning} {entry.remedy}" for entry in estimate.budget.entries[1:]}  # as bars
        own = [reason for reason in own if reason not in drawn]
    return own + disagreements if estimate.verdict == "distrust" else disagreements + own


def _truth(table: Comparison, policy: str, on: Axis) -> tuple[float, str] | None:
    known = table.truth.get(policy)
    if known is None:
        return None
    error = known.get("standard_error")
    decimals = decimals_of(2 * error) if error is not None else None
    text = number(known["value"], decimals)
    if decimals is not None:
        text += f" ± {number(error, decimals)}"
    return 100 * float(on.place(known["value"])), text
