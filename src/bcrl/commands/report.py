"""`bcrl report`: make the page again, from JSON alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from bcrl.commands.parsing import parse
from bcrl.errors import printable


@dataclass(kw_only=True)
class Report:
    """Make the page of a comparison, or of a single estimate, from its JSON alone.

    Example: bcrl report results.json --out report.html
    """

    results: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="JSON")]
    """What bcrl compare or bcrl evaluate wrote."""
    out: Path | None = None
    """The page to write; report.html beside the JSON if left out."""


def main(argv: Sequence[str]) -> int:
    """Write the page and print its path."""
    options = parse(Report, "report", argv)
    from bcrl.comparison import Comparison
    from bcrl.report import write_report

    out = options.out if options.out is not None else options.results.with_name("report.html")
    print(printable(write_report(Comparison.load(options.results), out)))
    return 0
