"""The first screen: what each policy is worth, how sure we are, whether to believe it, and why."""

import math
from dataclasses import dataclass

from bcrl.comparison import Comparison
from bcrl.estimate import Estimate, Status, Verdict
from bcrl.report.axes import Axis
from bcrl.report.spans import Span, shared_axis, span
from bcrl.report.words import (
    decimals_of,
    half_width,
    interval_text,
    level_text,
    number,
    percent,
    signed,
    value_text,
)

_REASONS = 2


@dataclass(frozen=True)
class Row:
    """One method's answer for one policy, as it is drawn."""

    method: int
    name: str
    verdict: Verdict
    value: str
    interval: str
    span: Span


@dataclass(frozen=True)
class Answer:
    """One policy: the best supported answer in words, and a row per method.

    Attributes:
        sureness: the sentence on the interval.
        against_logged: the sentence on the difference to the logged policy; empty when unknown.
        reasons: why the verdict is what it is, the most important first.
        truth: position and text of the true value; None when unknown.
    """

    index: int
    policy: str
    method: str
    verdict: Verdict
    value: str
    is_number: bool
    sureness: str
    against_logged: str
    reasons: tuple[str, ...]
    rows: tuple[Row, ...]
    truth: tuple[float, str] | None

    @property
    def by(self) -> str:
        """Which method gave the answer, and how it was chosen."""
        if len(self.rows) == 1:
            return f"by {self.method}"
        if all(row.verdict == "distrust" for row in self.rows):
            return f"by {self.method}; the checks doubt all {len(self.rows)} methods"
        return f"by {self.method}, the best supported of {len(self.rows)} methods"


def value_axis(table: Comparison) -> Axis:
    """One axis for every policy, the logged policy and the truth."""
    every = [estimate for row in table.estimates.values() for estimate in row.values()]
    believed = [estimate for estimate in every if estimate.verdict != "distrust"]
    doubted = [estimate for estimate in every if estimate.verdict == "distrust"]
    fixed = [known["value"] for known in table.truth.values()]
    logged = [table.logged] if table.logged is not None else []
    return shared_axis(
        [*fixed, *(estimate.value for estimate in [*logged, *believed])],
        [end for estimate in [*logged, *believed] for end in _ends(estimate)],
        [number for estimate in doubted for number in (estimate.value, *_ends(estimate))],
    )


def answers(table: Comparison, on: Axis) -> list[Answer]:
    """An answer per policy, in the comparison's order."""
    return [_answer(table, index, policy, on) for index, policy in enumerate(table.policies)]


def logged_row(table: Comparison, on: Axis) -> Row | None:
    """The logged policy's own row; None when nobody computed its value."""
    logged = table.logged
    if logged is None:
        return None
    drawn = span(logged.value, logged.interval, on)
    name = "logged policy" + (", as recorded" if table.withheld else "")
    return Row(-1, name, "trust", value_text(logged), interval_text(logged.interval), drawn)


def _answer(table: Comparison, index: int, policy: str, on: Axis) -> Answer:
    method, verdict = table.headline(policy)
    estimate = table.estimates[policy][method]
    order = {name: position for position, name in enumerate(table.methods)}
    rows = [
        Row(
            order[name],
            name,
            e.verdict,
            value_text(e),
            interval_text(e.interval),
            span(e.value, e.interval, on),
        )
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
        # A probability beside a number that nobody should believe would only make it look credible.
        against_logged=table.withheld
        or ("" if verdict == "distrust" else _against_logged(table, policy, method)),
        reasons=tuple(_reasons(table, policy, estimate))[:_REASONS],
        rows=tuple(rows),
        truth=_truth(table, policy, on),
    )


def _ends(estimate: Estimate) -> tuple[float, ...]:
    return () if estimate.interval is None else (estimate.interval.low, estimate.interval.high)


def _sureness(estimate: Estimate, verdict: Verdict) -> str:
    interval = estimate.interval
    if estimate.status is Status.DIVERGED or not math.isfinite(estimate.value):
        return estimate.status.meaning
    if interval is None or math.isnan(interval.low) or math.isnan(interval.high):
        return "This method gives no interval, so it cannot say how sure it is."
    decimals = decimals_of(half_width(interval))
    low, high = number(interval.low, decimals), number(interval.high, decimals)
    if verdict == "distrust":
        return f"Its interval, {low} to {high}, counts sampling error only, and the checks doubt it."
    return f"Between {low} and {high} with {level_text(interval)} confidence."


def _against_logged(table: Comparison, policy: str, method: str) -> str:
    logged, difference = table.logged, table.differences.get(policy, {}).get(method)
    if logged is None or difference is None or not math.isfinite(difference.value):
        return ""
    decimals = decimals_of(half_width(difference.interval))
    text = f"{signed(difference.value, decimals)} against the logged policy’s {value_text(logged)}"
    if difference.probability_better is not None:
        text += f"; better with probability {percent(difference.probability_better)}"
    return text + "."


def _reasons(table: Comparison, policy: str, estimate: Estimate) -> list[str]:
    disagreements = [check.meaning for check in table.checks.get(policy, ()) if check.verdict != "trust"]
    # The page already says that it blew up; that it ended as planned is not worth a line.
    told = estimate.status not in (Status.LIMIT, Status.DEGENERATE)
    own = [reason for reason in estimate.reasons if not (told and estimate.status.meaning in reason)]
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
