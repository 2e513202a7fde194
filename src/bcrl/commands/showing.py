"""A comparison as a table on the terminal, with the reasons under it."""

import math

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bcrl.comparison import Comparison
from bcrl.errors import printable
from bcrl.estimate import Estimate
from bcrl.inference.intervals import quantile
from bcrl.report.ranking import ranks
from bcrl.report.sections import probability_best
from bcrl.report.words import (
    choice_sentence,
    decision_sentence,
    value_text,
    widest,
    width_sentence,
)

_FEW = 3
_COLOUR = {"trust": "green", "caution": "yellow", "distrust": "red"}


def print_comparison(comparison: Comparison) -> None:
    """Values, intervals, verdicts; then decisions, the honest interval's width and its largest entries."""
    console = Console(highlight=False)
    _print_ranking(console, comparison)
    budgeted = any(e.budget is not None for row in comparison.estimates.values() for e in row.values())
    steps = "" if comparison.horizon is None else f", {comparison.horizon} steps"
    table = Table(title=f"Discounted return (discount {comparison.discount:g}{steps})", title_justify="left")
    for name in (
        "policy",
        "method",
        "value",
        f"{'honest ' if budgeted else ''}{100 * comparison.level:g} % interval",
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
    told = set(comparison.policies)
    if len(told) > _FEW:  # the reasons of many policies would push the answer off the screen
        told = {comparison.ranking()[1][0]}
        others = len(comparison.policies) - 1
        console.print(f"Reasons of the first one; those of the other {others} are on the page.")
    for policy, row in comparison.estimates.items():
        if policy not in told:
            continue
        for method, estimate in row.items():
            console.print(f"[bold]{_cell(policy)}[/bold] by {_cell(method)}: {_verdict(estimate)}")
            for line in (*_decided(comparison, policy, method), *_why(estimate)):
                console.print(f"  - {printable(line)}", markup=False)
        _print_next_steps(console, comparison, policy)
        for check in comparison.checks.get(policy, ()):
            if check.verdict != "trust":
                console.print(f"  - {printable(check.meaning)}", markup=False)


def _print_next_steps(console: Console, comparison: Comparison, policy: str) -> None:
    """What can be said and done about a policy that is not trusted, a line each."""
    steps = comparison.next_steps.get(policy, ())
    if steps:
        console.print(f"[bold]{_cell(policy)}[/bold]: what you can do")
    for step in steps:
        console.print(f"  - {printable(step.text)}", markup=False)


def _print_ranking(console: Console, comparison: Comparison) -> None:
    """All policies by one method, best first."""
    rows = ranks(comparison)
    if not rows:
        return
    method = _cell(comparison.ranking()[0])
    table = Table(title=f"Ranking, all by {method}", title_justify="left")
    for name in ("policy", "value", "interval", "best of all", "against the log", "verdict"):
        table.add_column(name)
    for row in rows:
        colour = _COLOUR[row.verdict]
        cells = (row.policy, row.value, row.interval, row.best, row.against)
        table.add_row(*map(_cell, cells), f"[{colour}]{row.verdict}[/{colour}]")
    console.print(table)


def _cell(name: str) -> str:
    """A name as a cell shows it: no markup, no controls."""
    return escape(printable(name))


def _why(estimate: Estimate) -> list[str]:
    """The honest interval's width, the log's faults, the three largest entries; else the checks' reasons."""
    width = width_sentence(estimate)
    return [width, *estimate.reasons] if width else estimate.reasons[:4]


def _decided(comparison: Comparison, policy: str, method: str) -> list[str]:
    """What was decided about a policy by a method, against the log and against the others."""
    difference, logged = comparison.differences.get(policy, {}).get(method), comparison.logged
    lines = []
    if difference is not None and logged is not None:
        lines.append(decision_sentence(difference, f"the logged policy's {value_text(logged)}"))
    choice = comparison.choices.get(method)
    if choice is not None and choice.winner == policy:
        lines.append(choice_sentence(choice, len(comparison.estimates)))
        lines += [decision_sentence(pair, other) for other, pair in choice.pairs[policy].items()]
    return [line for line in lines if line]


def _numbers(estimate: Estimate) -> tuple[str, str]:
    value = f"{estimate.value:.4g}" if math.isfinite(estimate.value) else estimate.status.value
    around = widest(estimate)
    return value, "none" if around is None else f"{around.low:.4g} to {around.high:.4g}"


def _contrast(comparison: Comparison, policy: str, method: str) -> tuple[str, str]:
    difference = comparison.differences.get(policy, {}).get(method)
    best = probability_best(comparison, policy, method)
    against = "" if difference is None or not math.isfinite(difference.value) else f"{difference.value:+.4g}"
    if difference is not None and difference.decision is not None:
        against += f" {difference.decision}"
    elif difference is not None and difference.lower_bound is not None and math.isfinite(difference.value):
        against += f" (at least {difference.lower_bound:+.4g})"
    return against, "" if best is None or len(comparison.estimates) < 2 else f"{best:.0%}"


def _verdict(estimate: Estimate) -> str:
    colour = _COLOUR[estimate.verdict]
    return f"[{colour}]{estimate.verdict}[/{colour}]"
