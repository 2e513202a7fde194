"""The budget on the page: bars that add up, thick and thin intervals, the rule in words, the decisions."""

import json
import re
from dataclasses import replace

import pytest
from example_comparison import budgeted_example, example
from test_page import HOSTILE, Page

from bcrl.comparison import Comparison
from bcrl.estimate import DISTRUST_WIDTH, TRUST_WIDTH, Budget, Check, Entry, Estimate, Interval, Status
from bcrl.report.answers import answers, value_axis
from bcrl.report.budgets import bars, few_bars
from bcrl.report.page import render
from bcrl.report.words import WIDTH_RULES, share, width_sentence


def test_bars_begin_where_the_last_one_ended_and_fill_the_half_width():
    estimate = budgeted_example().estimates["new actor"]["bcrl"]
    for drawn in (bars(estimate), few_bars(estimate)):
        assert drawn[0].start == 0.0
        ends = [bar.start + bar.width for bar in drawn]
        assert [bar.start for bar in drawn[1:]] == pytest.approx(ends[:-1])
        assert ends[-1] == pytest.approx(100.0)
    assert len(bars(estimate)) == 7 and [bar.name for bar in few_bars(estimate)][-1] == "3 others"
    assert bars(replace(estimate, budget=None)) == []


def test_every_entry_has_its_sentence_and_its_remedy_on_the_page():
    table = budgeted_example()
    words = Page(render(table)).words
    for row in table.estimates.values():
        for estimate in row.values():
            for entry in estimate.budget.entries if estimate.budget else ():
                assert entry.meaning in words and entry.remedy in words
    for sentence in (
        "Between 57.5 and 66.7 with everything counted (95%); 58.7 to 65.5 by chance alone.",
        "The honest interval reaches 7% of the scale to either side: trust up to 10%. You may believe it.",
        "The honest interval reaches 30% of the scale to either side: caution between 10 and 30%.",
        "The honest interval reaches 50% of the scale to either side: distrust above 30%.",
        "What may make bcrl’s 62.1 wrong: ±4.6 in all",
        "Better than the logged policy’s 42.3 by 19.8 (14.0 to 25.6) with probability > 99.9%.",
        "Cannot tell whether it is better than the logged policy’s 42.3: the difference of +5.6 may be",
        "Highest of 2 policies; corrected for having been chosen: 61.6, and at least 56.8.",
        "3 episodes are exact copies of others. Drop them.",
    ):
        assert sentence in words


def test_the_honest_interval_holds_the_sampling_interval_on_one_axis():
    table = budgeted_example()
    first = answers(table, value_axis(table))[0]
    row = next(row for row in first.rows if row.name == "bcrl")
    assert row.honest.start < row.span.start
    assert row.honest.start + row.honest.width > row.span.start + row.span.width
    assert row.honest.dot == row.span.dot and row.interval == "57.5 to 66.7"
    page = Page(render(table))
    classes = [attrs.get("class", "") for tag, attrs in page.elements if tag == "i"]
    # Five of six estimates have a budget; each is drawn as a value and as a difference, two in the ranking.
    assert sum("interval" in c and "honest" in c for c in classes) == 12
    assert sum("interval" in c and "sampling" in c for c in classes) == 12


def test_the_axis_shows_a_wide_value_but_no_absurd_one():
    """Distrusted for its width alone: drawn where it is. Not even known to within the scale: an arrow."""
    logged = Estimate(10.0, "logged returns", 0.9, interval=Interval(9.5, 10.5), standard_error=0.25)
    row = {"wide": _with(0.5, value=20.0), "lost": _with(5.0, value=900.0)}
    table = Comparison({"p": row}, logged=logged)
    (answer,) = answers(table, value_axis(table))
    assert [each.verdict for each in answer.rows] == ["distrust", "distrust"]
    assert [each.span.beyond for each in answer.rows] == ["", "high"]


def test_diagnostics_are_folded_and_faults_are_not():
    page = Page(render(budgeted_example()))
    folded = [
        attrs for tag, attrs in page.elements if tag == "details" and attrs.get("class") == "diagnostics"
    ]
    assert len(folded) == 5 and all("open" not in attrs for attrs in folded)
    assert "A verdict is the worst of its checks." not in page.words
    assert "Where there is no budget, a verdict is the worst of its checks." in page.words


def test_a_page_without_budgets_says_nothing_of_them():
    page = Page(render(example()))
    for word in ("honest", "by chance alone", "Between the policies", "cannot tell"):
        assert word not in page.words
    classes = " ".join(attrs.get("class") or "" for _, attrs in page.elements)
    assert "beam" not in classes and "diagnostics" not in classes
    assert "A verdict is the worst of its checks." in page.words


def test_a_file_without_the_new_fields_reads_as_before():
    """What 0.1 wrote: no budget, no binding, no decision, no choice."""
    record = json.loads(example().to_json())
    record.pop("choices")
    for row in record["estimates"].values():
        for estimate in row.values():
            estimate.pop("budget")
            for check in estimate["checks"]:
                check.pop("binding")
    for row in record["differences"].values():
        for difference in row.values():
            for name in ("decision", "probability", "honest"):
                difference.pop(name)
    assert render(Comparison.from_json(json.dumps(record))) == render(example())


def test_a_page_with_budgets_comes_from_json_alone():
    table = budgeted_example()
    again = Comparison.from_json(table.to_json())
    assert again.choices == table.choices and again.differences == table.differences
    for policy, row in table.estimates.items():
        assert [e.budget for e in again.estimates[policy].values()] == [e.budget for e in row.values()]
    assert again.to_json() == table.to_json() and render(again) == render(table)


def _with(width: float, value: float = 10.0, **more: object) -> Estimate:
    honest = Interval(value - value * width, value + value * width)
    return Estimate(value, "m", 0.9, budget=Budget((), honest, 10.0, 1.0), **more)


def test_the_rule_is_said_with_the_numbers_that_the_code_reads():
    for verdict, width in (("trust", TRUST_WIDTH), ("caution", DISTRUST_WIDTH), ("distrust", 0.31)):
        estimate = _with(width - 1e-9)
        assert estimate.verdict == verdict
        assert width_sentence(estimate).endswith(f"side: {WIDTH_RULES[verdict]}.")
        said = [float(number) / 100 for number in re.findall(r"\d+", WIDTH_RULES[verdict])]
        assert set(said) <= {TRUST_WIDTH, DISTRUST_WIDTH} and said


def test_what_else_stands_against_a_value_is_said():
    fault = Check("copies", None, None, "distrust", "Copies.")
    assert "but the log has a fault" in width_sentence(_with(0.05, checks=(fault,)))
    assert "did not end well" in width_sentence(_with(0.05, status=Status.DEGENERATE))
    assert width_sentence(_with(0.05, checks=(replace(fault, binding=False),))).endswith("10%.")


def test_a_disagreement_of_methods_is_said_beside_the_width():
    table = budgeted_example()
    apart = (Check("methods agree", 9.0, 2.0, "caution", "They differ."),)
    words = Page(render(replace(table, checks={"new actor": apart}))).words
    assert "trust up to 10%. But the methods disagree. Take it with caution." in words
    assert "But the methods disagree" not in Page(render(table)).words


def test_shares():
    assert [share(x) for x in (0.001, 0.07, 1.5, 12.3, float("inf"))] == [
        "less than 1%", "7%", "150%", "1,230%", "far more than 100%",
    ]  # fmt: skip


def test_values_and_scales_of_nothing_draw():
    entry = Entry("floor", 0.0, "Nothing.", "Nothing.")
    budget = Budget((entry,), Interval(0.0, 0.0), 0.0, 1.0)
    words = Page(render(Comparison.of(Estimate(0.0, "m", 0.9, budget=budget)))).words
    assert "far more than 100%" in words


def test_hostile_names_stay_text():
    entry = Entry(HOSTILE, 1.0, HOSTILE, HOSTILE)
    estimate = Estimate(10.0, "m", 0.9, budget=Budget((entry,), Interval(9.0, 11.0), 10.0, 1.0))
    text = render(budgeted_example(first=HOSTILE, second="plain")) + render(Comparison.of(estimate))
    assert "<img src=x" not in text and "window.hacked" in Page(text).words
