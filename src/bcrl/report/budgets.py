"""The error budget as bars: each begins where the last one ended, so that they add up to the half width."""

from dataclasses import dataclass

from bcrl.estimate import Budget, Entry, Estimate
from bcrl.report.words import decimals_of, number, share

_SHOWN = 4  # bars on the first screen; the rest is one bar


@dataclass(frozen=True)
class Bar:
    """One entry as it is drawn; `start` and `width` in percent of the honest interval's half width."""

    name: str
    amount: str
    share: str
    start: float
    width: float
    meaning: str
    remedy: str


def bars(estimate: Estimate) -> list[Bar]:
    """Every entry of the estimate's budget, largest first; none without a budget."""
    budget = estimate.budget
    return [] if budget is None else _laid(budget.entries, budget, estimate.value)


def few_bars(estimate: Estimate) -> list[Bar]:
    """The largest entries, and the others in one bar."""
    budget = estimate.budget
    if budget is None or len(budget.entries) <= _SHOWN + 1:
        return bars(estimate)
    rest = budget.entries[_SHOWN:]
    others = Entry(f"{len(rest)} others", sum(entry.amount for entry in rest), "", "")
    return _laid((*budget.entries[:_SHOWN], others), budget, estimate.value)


def _laid(entries: tuple[Entry, ...], budget: Budget, value: float) -> list[Bar]:
    total = sum(entry.amount for entry in entries)
    size = max(abs(value), budget.scale)
    decimals = decimals_of(total)
    found, start = [], 0.0
    for entry in entries:
        width = 100.0 * entry.amount / total if total > 0.0 else 0.0
        part = share(entry.amount / size) if size > 0.0 else ""
        found.append(
            Bar(entry.name, number(entry.amount, decimals), part, start, width, entry.meaning, entry.remedy)
        )
        start += width
    return found
