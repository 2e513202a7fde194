"""Does the verdict earn its name? Shares over all cells whose truth is known, and over random worlds with
exact values.

    trusted and right       of the values with verdict "trust", those off by less than 10 %       wanted: 95 %
    caught            of the values off by more than 30 %, those with verdict "distrust"          wanted: 80 %
    trusted where covered   of the well covered cases, those with verdict "trust"                 wanted: 50 %

Well covered: the mixture, which holds the target policy's own episodes; and worlds with kappa(p0) under 5
(bcrl_bench.studies.verdict_study). The constant mean has no checks, so it gives no verdict and is left out.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bcrl_bench.experiments.protocol import Record, mean_error

RIGHT, WRONG, COVERED = 0.10, 0.30, 5.0
NO_VERDICT = ("mean",)


@dataclass(frozen=True)
class Case:
    """An error as a share of the truth, and what the verdict was."""

    group: str
    error: float
    verdict: str
    covered: bool


@dataclass(frozen=True)
class Shares:
    """Each share as (hits, cases)."""

    trusted_right: tuple[int, int]
    caught: tuple[int, int]
    covered_trusted: tuple[int, int]
    cases: int

    def row(self) -> str:
        """Cells of a Markdown table."""
        texts = [
            f"{hits} of {count}{f' ({hits / count:.1%})' if count else ''}"
            for hits, count in (self.trusted_right, self.caught, self.covered_trusted)
        ]
        return " | ".join([str(self.cases), *texts])


def case_of(record: Record) -> Case:
    """A cell of the grid."""
    cell = record["experiment"]
    return Case(cell["method"], mean_error(record), record["verdict"], cell["dataset"] == "mixture")


def worlds(path: Path) -> list[Case]:
    """Random worlds, as bcrl_bench.studies.verdict_study writes them."""
    rows: list[Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return [
        Case(f"world {row['world']}", float(row["error"]), row["verdict"], row["kappa"] < COVERED)
        for row in rows
    ]


def shares(cases: Sequence[Case]) -> Shares:
    """The three shares."""
    trusted = [case for case in cases if case.verdict == "trust"]
    wrong = [case for case in cases if not case.error <= WRONG]
    covered = [case for case in cases if case.covered]
    return Shares(
        (sum(case.error < RIGHT for case in trusted), len(trusted)),
        (sum(case.verdict == "distrust" for case in wrong), len(wrong)),
        (sum(case.verdict == "trust" for case in covered), len(covered)),
        len(cases),
    )


def verdict_page(records: Sequence[Record], known_worlds: Path | None) -> str:
    """results/verdict_grid.md: three shares over everything, over cells and worlds apart, and by method."""
    cells = [case_of(r) for r in records if r["experiment"]["method"] not in NO_VERDICT]
    others = worlds(known_worlds) if known_worlds is not None else []
    beside = f", {len(others)} evaluations of random worlds ({known_worlds})" if others else ""
    lines = [
        "# Does the verdict earn its name?",
        "",
        f"{len(cells)} cells with known truth{beside}; the constant mean, which has no checks, is left out.",
        f"Right: off by less than {RIGHT:.0%} of the truth. Wrong: by more than {WRONG:.0%}. Well covered: "
        "the mixture, and "
        f"worlds with kappa(p0) under {COVERED:g}.",
        "",
        "| | cases | trusted and right (wanted 95 %) | wrong and distrusted (80 %) | well covered and "
        "trusted (50 %) |",
        "|---|---|---|---|---|",
    ]
    groups = {"**all**": [*cells, *others], "**cells**": cells, "**worlds**": others}
    for case in groups["**all**"]:
        groups.setdefault(case.group, []).append(case)
    lines += [f"| {name} | {shares(cases).row()} |" for name, cases in groups.items() if cases]
    return "\n".join(lines) + "\n"
