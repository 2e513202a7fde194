"""A comparison as a table on the terminal, with the reasons under it."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bcrl.comparison import Comparison
from bcrl.display import ends_of, value_of
from bcrl.errors import printable
from bcrl.estimate import Estimate, Interval, Verdict
from bcrl.inference.intervals import quantile
from bcrl.report.first_words import opening
from bcrl.report.ranking import against_log, cohort_rows, ranks
from bcrl.report.sections import probability_best
from bcrl.report.words import (
    choice_sentence,
    decimals_of,
    decision_sentence,
    number,
    percent,
    signed,
    value_text,
    widest,
    width_sentence,
)

_FEW = 3
_COLOUR = {"trust": "green", "caution": "yellow", "distrust": "red"}


def print_comparison(comparison: Comparison) -> None:
    """Values, intervals, verdicts; then the reasons; of several policies the answer comes last, where a
    terminal stops.
    """
    console = Console(highlight=False)
    ranked = _print_ranking(console, comparison)
    if not ranked or len(comparison.methods) > 1 or comparison.truth:
        _print_values(console, comparison)
    _print_cohorts(console, comparison)
    _print_reasons(console, comparison)
    for row in comparison.estimates.values():
        for line in [line for estimate in row.values() if estimate.theory for line in estimate.theory.lines]:
            console.print(escape(line), soft_wrap=True)
    _print_opening(console, comparison)


def _print_opening(console: Console, comparison: Comparison) -> None:
    """Which one, how much better, may we believe it, what next: the page's first words."""
    found = opening(comparison)
    if found is None:
        return
    console.print()
    console.print(
        f"[bold]{_said(found.headline)}[/bold]" + f" ({_coloured(found.verdict)})" * bool(found.policy)
    )
    for line in (found.against, found.higher, f"What next: {found.following}"):
        if line:
            console.print(_said(line))


def _print_values(console: Console, comparison: Comparison) -> None:
    """Every policy by every method, and the logged policy."""
    budgeted = any(e.budget is not None for row in comparison.estimates.values() for e in row.values())
    table = Table(title=_asked(comparison), title_justify="left")
    for name in (
        "policy",
        "method",
        "value",
        f"{'honest ' if budgeted else ''}{100 * comparison.level:g}% interval",
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
            ends = Interval(known["value"] - spread, known["value"] + spread)
            value = number(known["value"], decimals_of(spread)).replace("−", "-")
            table.add_row(_cell(policy), "truth (rollouts)", value, ends_of(ends), "", "", "", style="dim")
    console.print(table)


def _asked(comparison: Comparison) -> str:
    steps = "" if comparison.horizon is None else f", {comparison.horizon} steps"
    return f"Discounted return (discount {comparison.discount:g}{steps})"


def _print_reasons(console: Console, comparison: Comparison) -> None:
    """Why each verdict; of many policies that of the best one."""
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
            if len(comparison.policies) > 1 and method != comparison.ranking()[0]:
                continue  # of several policies the reasons of the method that ranks them; the page has all
            console.print(f"[bold]{_cell(policy)}[/bold] by {_cell(method)}: {_verdict(estimate)}")
            for line in (*_decided(comparison, policy, method), *_why(estimate)):
                console.print(f"  - {_said(line)}")
        _print_next_steps(console, comparison, policy)
        for check in comparison.checks.get(policy, ()):
            if check.verdict != "trust":
                console.print(f"  - {_said(check.meaning)}")


def _print_next_steps(console: Console, comparison: Comparison, policy: str) -> None:
    """What can be said and done about a policy that is not trusted, a line each."""
    steps = comparison.next_steps.get(policy, ())
    if steps:
        console.print(f"[bold]{_cell(policy)}[/bold]: what you can do")
    for step in steps:
        console.print(f"  - {_said(step.text)}")


def _print_ranking(console: Console, comparison: Comparison) -> bool:
    """All policies by one method, best first, and the logged policy; whether there was anything to rank."""
    rows = ranks(comparison)
    if not rows:
        return False
    method = _cell(comparison.ranking()[0])
    table = Table(title=f"{_asked(comparison)}: best first, all by {method}", title_justify="left")
    for name in ("policy", "value", "interval", "best of all", "against the log", "verdict"):
        table.add_column(name)
    for row in rows:
        numbers = _numbers(comparison.estimates[row.policy][comparison.ranking()[0]])
        table.add_row(_cell(row.policy), *numbers, *_cells(row.best, row.against), _coloured(row.verdict))
    if comparison.logged is not None:
        table.add_row("logged", *_numbers(comparison.logged), "", "", "", style="dim")
    console.print(table)
    return True


def _print_cohorts(console: Console, comparison: Comparison) -> None:
    """Groups of episodes as guardrails, worst first."""
    rows = cohort_rows(comparison)
    if not rows:
        return
    table = Table(title="For whom? Groups, worst first", title_justify="left")
    for name in ("group", "policy", "episodes", "value", "interval", "against the log", "verdict"):
        table.add_column(name)
    for row in rows:
        cells = _cells(row.cohort, row.policy, row.episodes, row.value, row.interval, row.against)
        table.add_row(*cells, _coloured(row.verdict))
    console.print(table)


def _coloured(verdict: Verdict) -> str:
    return f"[{_COLOUR[verdict]}]{verdict}[/{_COLOUR[verdict]}]"


def _cell(name: str) -> str:
    """A name as a cell shows it: no markup, no controls."""
    return escape(printable(name))


def _said(text: str) -> str:
    """A sentence as a terminal shows it: no markup, no controls, a plain minus and apostrophe."""
    return _cell(text).replace("−", "-").replace("’", "'")


def _cells(*texts: str) -> list[str]:
    """Cells with a plain minus, which scripts can read."""
    return [_said(text) for text in texts]


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
    around = widest(estimate)
    return value_of(estimate), "none" if around is None else ends_of(around)


def _contrast(comparison: Comparison, policy: str, method: str) -> tuple[str, str]:
    difference = comparison.differences.get(policy, {}).get(method)
    best = probability_best(comparison, policy, method)
    against = against_log(difference)
    if difference is not None and difference.decision is None and difference.lower_bound is not None:
        against += f" (at least {signed(difference.lower_bound)})"
    return against.replace("−", "-"), "" if best is None or len(comparison.estimates) < 2 else percent(best)


def _verdict(estimate: Estimate) -> str:
    return _coloured(estimate.verdict)
