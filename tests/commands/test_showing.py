"""The table on the terminal: honest intervals, decisions, the largest entries with their remedies."""

import pytest
from report.example_comparison import budgeted_example, example

from bcrl.commands.showing import print_comparison
from bcrl.comparison import Comparison


@pytest.fixture
def printed(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")  # no line is broken

    def show(table):
        print_comparison(table)
        return capsys.readouterr().out

    return show


def test_the_honest_interval_the_verdict_and_the_largest_entries(printed):
    table = budgeted_example()
    text = printed(table)
    assert "honest 95% interval" in text and "57.5 to 66.7" in text and "+19.8, better" in text
    about = text.split("new actor by bcrl: trust")[1].split("bold actor by bcrl")[0]
    lines = [line.removeprefix("  - ") for line in about.strip("\n").splitlines()]
    entries = table.estimates["new actor"]["bcrl"].budget.entries
    assert lines[-3:] == [f"{entry.meaning} {entry.remedy}" for entry in entries[:3]]
    assert "The honest interval reaches 7% of the scale to either side: trust up to 10%." in lines
    assert "Better than the logged policy's 42.3 by 19.8 (14.0 to 25.6) with probability > 99.9%." in lines
    assert "Highest of 2 policies; corrected for having been chosen: 61.6, and at least 56.8." in lines
    assert any(line.startswith("Cannot tell whether it is better than bold actor") for line in lines)


def test_a_fault_of_the_log_comes_before_the_entries(printed):
    table = budgeted_example()
    one = Comparison.of(
        table.estimates["new actor"]["random features"], policy="new actor", method="random features"
    )
    about = printed(one).split("new actor by random features: caution")[1]
    assert about.index("exact copies") < about.index("Other views would correct it")


def test_several_policies_end_with_the_answer_and_have_the_reasons_of_one_method(printed):
    text = printed(budgeted_example())
    assert text.rstrip().splitlines()[-3:] == [
        "new actor is better than today's policy (trust)",
        "Better than the logged policy's 42.3 by 19.8 (14.0 to 25.6) with probability > 99.9%.",
        "What next: Let it run on a few episodes beside today's policy; bcrl trial says after each whether "
        "it earns what is promised here.",
    ]
    assert "by fqe: " not in text and "by bcrl: " in text


def test_without_budgets_it_is_as_before(printed):
    text = printed(example())
    assert " 95% interval" in text and "58.7 to 65.5" in text and "(at least +17.1)" in text
    for word in ("honest", "Cannot tell", "Highest of"):
        assert word not in text
