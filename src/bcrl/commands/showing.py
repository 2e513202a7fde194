"""A comparison as a table on the terminal, with the reasons under it."""

import math

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bcrl.comparison import Comparison
from bcrl.errors import printable
from bcrl.estimate import Estimate
from bcrl.inference.intervals import quantile

_COLOUR = {"trust": "green", "caution": "yellow", "distrust": "red"}


def print_comparison(comparison: Comparison) -> None:
    """Values, intervals, verdicts, then why."""
    console = Console(highlight=False)
    steps = "" if comparison.horizon is None else f", {comparison.horizon} steps"
    table = Table(title=f"Discounted return (discount {comparison.discount:g}{steps})", title_justify="left")
    for name in (
        "policy",
        "method",
        "value",
        f"{100 * comparison.level:g} % interval",
        "against log",
        "best",
        "verdict",
    ):
        table.add_column(name, justify="right" if name in ("value", "against log", "best") else "left")
    if comparison.logged is not None:
        recorded = "its own returns" + (", as recorded" if comparison.withheld else "")
        table.add_row("logged", recorded, *_numbers(comparison.logged), "", "", "")
    for policy, row in comparison.estimates.items():
        for method, estimate in row.items():
            table.add_row(
                _cell(policy),
                _cell(method),
                *_numbers(estimate),
                *_contrast(comparison, policy, method),
                _verdict(estimate),
            )
        if policy in comparison.truth:
            known = comparison.truth[policy]
            spread = quantile(comparison.level) * known.get("standard_error", 0.0)
            ends = f"{known['value'] - spread:.4g} to {known['value'] + spread:.4g}"
            table.add_row(
                _cell(policy), "truth (rollouts)", f"{known['value']:.4g}", ends, "", "", "", style="dim"
            )
    console.print(table)
    if comparison.withheld:
        console.print(comparison.withheld, markup=False)
    for policy, row in comparison.estimates.items():
        for method, estimate in row.items():
            console.print(f"[bold]{_cell(policy)}[/bold] by {_cell(method)}: {_verdict(estimate)}")
            for reason in estimate.reasons[:4]:
                console.print(f"  - {printable(reason)}", markup=False)
        for check in comparison.checks.get(policy, ()):
            if check.verdict != "trust":
                console.print(f"  - {printable(check.meaning)}", markup=False)


def _cell(name: str) -> str:
    """A name as a cell shows it: no markup, no controls."""
    return escape(printable(name))


def _numbers(estimate: Estimate) -> tuple[str, str]:
    value = f"{estimate.value:.4g}" if math.isfinite(estimate.value) else estimate.status.value
    if estimate.interval is None:
        return value, "none"
    return value, f"{estimate.interval.low:.4g} to {estimate.interval.high:.4g}"


def _contrast(comparison: Comparison, policy: str, method: str) -> tuple[str, str]:
    difference = comparison.differences.get(policy, {}).get(method)
    best = comparison.probability_best.get(method, {}).get(policy)
    against = "" if difference is None or not math.isfinite(difference.value) else f"{difference.value:+.4g}"
    if difference is not None and difference.lower_bound is not None and math.isfinite(difference.value):
        against += f" (at least {difference.lower_bound:+.4g})"
    return against, "" if best is None or len(comparison.estimates) < 2 else f"{best:.0%}"


def _verdict(estimate: Estimate) -> str:
    colour = _COLOUR[estimate.verdict]
    return f"[{colour}]{estimate.verdict}[/{colour}]"
