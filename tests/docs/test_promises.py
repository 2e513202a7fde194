"""docs/promises.md: each promise and each finding has a test that stands, and what is not known is said."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TEXT = (TESTS.parent / "docs" / "promises.md").read_text()
ATTACKS = ["F6", "F7", "F11", "F12", "F14", "F15", "F17", *(f"F{number}" for number in range(40, 49))]


@pytest.mark.parametrize("finding", ATTACKS)
def test_each_finding_has_a_test_that_stands(finding):
    row = re.search(rf"^\| {finding}: [^|]+ \| ([^|]+) \|$", TEXT, flags=re.MULTILINE)
    assert row is not None
    for test in row[1].split(", "):
        path, _, name = test.partition("::")
        assert f"\ndef {name}(" in (TESTS / path).read_text(), test


def test_each_promise_names_a_test_that_is_there():
    rows = re.findall(r"^\| [^|]+ \| (tests/[^|]+) \|$", TEXT, flags=re.MULTILINE)
    assert len(rows) > 30
    for path in ", ".join(rows).split(", "):
        assert (TESTS.parent / path).exists(), path


def test_what_no_log_can_tell_is_said():
    said = TEXT.partition("## Not known from a log")[2]
    for word in ("Confounding", "Hidden state", "Hidden groups", "Censoring that cannot be seen"):
        assert f"**{word}**" in said
