"""docs/verdict.md says what the code does: the entries, the rule, the decision, and what is not claimed."""

import re
from pathlib import Path

from bcrl.estimate import DISTRUST_WIDTH, TRUST_WIDTH
from bcrl.inference.budget import _WORDS, FLOOR, LEAST_ROWS, entries_of, stretch
from bcrl.inference.intervals import quantile
from bcrl.report.words import WIDTH_RULES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "verdict.md").read_text()


def rows(head: str) -> dict[str, str]:
    """The first two columns of the table whose head begins so."""
    table = re.search(rf"^\| {head} \|.*\n\|[-|]+\n((?:\|.*\n)+)", TEXT, flags=re.MULTILINE)
    assert table is not None, head
    cells = [line.strip("|").split("|") for line in table[1].splitlines()]
    return {first.strip(): second.strip() for first, second in cells}


def test_every_entry_is_explained_and_no_other():
    """The page's names are those of the sentences, and of the code that measures them."""
    told = rows("entry")
    assert list(told) == list(_WORDS)
    names = (
        "scale",
        "highest_return",
        "lowest_return",
        "return_spread",
        "unsupported",
        "novelty",
        "consensus",
    )
    names = (*names, "view x")
    numbers = dict.fromkeys(names, 1.0)
    measured = entries_of({f"evidence/{name}": value for name, value in numbers.items()}, 1.0, 0.1)
    assert set(measured) == set(told)
    assert told["floor"].startswith(f"{100 * FLOOR:g} % of the scale")


def test_the_rule_is_the_codes():
    assert {f"{verdict} {width}" for verdict, width in rows("verdict").items()} == set(WIDTH_RULES.values())
    assert rows("verdict")["trust"] == f"up to {100 * TRUST_WIDTH:g}%"
    assert rows("verdict")["distrust"] == f"above {100 * DISTRUST_WIDTH:g}%"
    assert f"fewer than {LEAST_ROWS} transitions" in TEXT


def test_the_decisions_stretch_is_the_codes():
    assert "z(1 - 0.025 / k) / z(0.975)" in TEXT
    for k in (1, 2, 7):
        # `quantile` is two-sided: its level leaves half of the rest on either side.
        assert stretch(k) == quantile(1 - 0.05 / k) / quantile(0.95)


def test_it_fits_two_screens_and_claims_no_more_than_was_counted():
    assert len(TEXT.split()) < 1200
    assert "over the families of worlds" in TEXT and "no more" in TEXT and "## What it does not know" in TEXT
    assert (ROOT / "results" / "verdict_history.md").exists()
