"""The page: complete, from JSON alone, self-contained, and deaf to hostile text."""

import base64
import dataclasses
import hashlib
import json
import math
import re
from html.parser import HTMLParser

import pytest
from example_comparison import example

from bcrl.cli import main
from bcrl.comparison import Cohort, Comparison, Difference
from bcrl.errors import BadInput
from bcrl.estimate import Budget, Check, Entry, Estimate, Interval, NextStep, Status
from bcrl.report import write_report
from bcrl.report.first_words import opening
from bcrl.report.page import render, run_text, script_json
from bcrl.report.sections import training_panels

HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>\"'&{{ 7 * 7 }}"


class Page(HTMLParser):
    """Elements, their attributes, ids and the visible text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.hidden = 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.hidden += tag in ("script", "style")

    def handle_endtag(self, tag):
        self.hidden -= tag in ("script", "style")

    def handle_data(self, data):
        if not self.hidden:
            self.text.append(data)

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.text))

    @property
    def ids(self) -> set[str | None]:
        return {attrs.get("id") for _, attrs in self.elements}


def hostile() -> Comparison:
    """Every text that a dataset, a policy or a method could bring is hostile."""
    table = example(first=HOSTILE, second="plain")
    check = Check(HOSTILE, 1.0, 2.0, "distrust", HOSTILE)
    worst = dataclasses.replace(
        table.estimates["plain"]["fqe"],
        method=HOSTILE,
        checks=(check,),
        curves={f"train/{HOSTILE}": [1.0, 2.0], "value_over_time": [1.0, 2.0]},
        timings={HOSTILE: 1.0},
        provenance={"pictures": [{"title": HOSTILE, "rows": [{"label": HOSTILE, "frames": [HOSTILE]}]}]},
    )
    return dataclasses.replace(
        table,
        estimates={**table.estimates, "plain": {HOSTILE: worst}},
        checks={HOSTILE: (check,)},
        dataset={
            "name": HOSTILE, "hash": HOSTILE, "keys": {HOSTILE: [3]}, "frames": [HOSTILE],
            "findings": [{"level": HOSTILE, "what": HOSTILE, "where": HOSTILE, "do": HOSTILE}],
        },
        command=HOSTILE,
        versions={HOSTILE: HOSTILE},
    )  # fmt: skip


def test_the_page_answers_in_words():
    words = Page(render(example())).words
    for sentence in (
        "62.1", "Between 58.7 and 65.5 with 95% confidence.", "You may believe it.", "Take it with caution.",
        "+19.8 against the logged policy’s 42.3; better with probability > 99.9%.", "truth 63.0 ± 0.6",
        "42.3 40.1 to 44.5", "3.1 × 10¹²", "All by bcrl, best first.", "discount 0.99",
    ):  # fmt: skip
        assert sentence in words
    one = Comparison({"new actor": example().estimates["new actor"]})
    assert "by bcrl, the best supported of 3 methods" in Page(render(one)).words


def compared(method: str = "m", **found: tuple[float, float, str | None]) -> Comparison:
    """Policies with value, half width and decision against a log that earned 10."""
    estimates = {
        name: {method: Estimate(v, method, 0.9, budget=Budget((_FLOOR,), Interval(v - h, v + h), 10.0, 1.0))}
        for name, (v, h, _) in found.items()
    }
    differences = {
        name: {
            method: Difference(
                v - 10, decision=said, probability=0.5, honest=Interval(v - 10 - h, v - 10 + h)
            )
        }
        for name, (v, h, said) in found.items()
    }
    logged = Estimate(10.0, "logged returns", 0.9, interval=Interval(9.9, 10.1))
    return Comparison(estimates, logged=logged, differences=differences)


_FLOOR = Entry("floor", 1.0, "Nothing is known better.", "Nothing makes this smaller.")


@pytest.mark.parametrize(
    ("policies", "headline", "chosen", "following"),
    [
        ({"a": (15.0, 1.0, "better"), "b": (12.0, 1.0, "better")}, "a is better", "a", "on a few episodes"),
        # The higher number is not to be believed, or decides nothing: the answer is about the other one.
        ({"a": (40.0, 30.0, "better"), "b": (12.0, 1.0, "better")}, "b is better", "b", "on a few episodes"),
        ({"a": (12.0, 3.0, "cannot tell"), "b": (11.5, 1.0, "better")}, "b is better", "b", "few episodes"),
        (
            {"a": (10.2, 1.0, "cannot tell"), "b": (8.0, 1.0, "worse")},
            "None of these is known",
            "a",
            "smaller",
        ),
        ({"a": (8.0, 0.5, "worse"), "b": (7.0, 0.5, "worse")}, "Keep today’s policy", "a", "Keep today’s"),
        ({"a": (40.0, 30.0, "better"), "b": (30.0, 29.0, "cannot tell")}, "None of these values may", "", ""),
    ],
)
def test_which_one_is_answered_with_what_may_be_believed(policies, headline, chosen, following):
    table = compared(**policies)
    found = opening(table)
    assert found.headline.startswith(headline) and found.policy == chosen and following in found.following
    words = Page(render(table)).words
    assert found.headline in words and found.following in words and found.higher in words
    skipped = table.ranking()[1].index(chosen) if chosen else 0
    assert bool(found.higher) == (skipped > 0)


def test_one_policy_needs_no_choice_and_a_group_that_would_lose_is_said():
    assert opening(compared(a=(15.0, 1.0, "better"))) is None
    table = compared(a=(15.0, 1.0, "better"), b=(12.0, 1.0, "better"))
    loses = Cohort("night shift", "a", 9, 5.0, difference=Difference(-5.0, decision="worse"))
    assert opening(dataclasses.replace(table, cohorts=(loses,))).headline == (
        "a is better than today’s policy, but worse for night shift"
    )


def test_methods_that_disagree_weaken_the_ranking_too():
    table = compared(a=(15.0, 1.0, "better"), b=(12.0, 1.0, "better"))
    apart = {"a": (Check("methods agree", 9.0, 2.0, "distrust", "They differ."),)}
    found = opening(dataclasses.replace(table, checks=apart))
    assert (found.policy, found.higher) == ("b", "a: a higher number, which nobody should believe.")


def test_a_step_that_the_advice_names_comes_first():
    table = compared(a=(10.2, 1.0, "cannot tell"), b=(8.0, 1.0, "worse"))
    steps = {"a": (NextStep("bounds", "Between 1 and 20."), NextStep("trial", "About 90 episodes."))}
    assert opening(dataclasses.replace(table, next_steps=steps)).following == "About 90 episodes."


def test_every_check_is_there_with_its_sentence():
    table = example()
    words = Page(render(table)).words
    for row in table.estimates.values():
        for estimate in row.values():
            for check in estimate.checks:
                assert check.meaning in words
    assert all(check.meaning in words for checks in table.checks.values() for check in checks)


def test_a_figure_for_every_curve():
    page = Page(render(example()))
    captions = page.words
    figures = [attrs for tag, attrs in page.elements if tag == "figure"]
    # 4 linear estimates x 3, 2 policies over time, (2 linear methods x 2 + fqe x 2) x 2 policies of training.
    assert len(figures) == 4 * 3 + 2 + 12
    for caption in (
        "LSPE curve",
        "Singular values",
        "Coverage",
        "Value from here on",
        "Loss",
        "Condition number",
    ):
        assert caption in captions
    assert sum(tag == "img" for tag, _ in page.elements) == 6 + 16


def test_the_page_comes_from_json_alone(tmp_path, capsys):
    table = example()
    path = table.save(tmp_path / "results.json")
    assert render(Comparison.load(path)) == render(table)
    assert main(["report", str(path), "--out", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == render(table)
    assert main(["report", str(path)]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["page.html", "report.html", "results.json"]


def test_the_command_refuses_in_one_line(tmp_path, capsys):
    assert main(["report", str(tmp_path / "absent.json")]) == 2
    told = capsys.readouterr().err
    assert "absent.json" in told and told.count("\n") == 1


@pytest.mark.parametrize("table", [example(), hostile()], ids=["plain", "hostile"])
def test_nothing_is_fetched(table):
    text = render(table)
    page = Page(text)
    assert not re.search(r"https?:|//[a-z]|@import|url\(", re.sub(r"base64,[^\"]*", "", text))
    for tag, attrs in page.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form")
        for name in ("src", "href", "srcset", "xlink:href", "action"):
            if name in attrs:
                assert attrs[name].startswith(("#", "data:image/png;base64,"))


def test_hostile_text_is_text():
    text = render(hostile())
    page = Page(text)
    scripts = [attrs for tag, attrs in page.elements if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "figures"}, {}]
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]
    assert "window.hacked" in page.words and "{{ 7 * 7 }}" in page.words
    assert "<img src=x" not in text and text.count("</script>") == 2


def test_the_content_policy_names_the_one_script():
    text = render(hostile())
    script = text.split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(attrs["content"] for tag, attrs in Page(text).elements if "http-equiv" in attrs)
    assert f"script-src 'sha256-{digest}'" in policy and policy.startswith("default-src 'none'")


def test_numbers_for_the_pointer_are_strict_json():
    table = example()
    broken = dataclasses.replace(
        table.estimates["new actor"]["bcrl"],
        curves={"lspe": [1.0, 2.0, math.nan, math.inf], "train/x": [1.0, math.nan, 2.0]},
    )
    text = render(Comparison({"<p>": {"m": broken}}))
    inside = text.split('id="figures">')[1].split("</script>")[0]

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    figures = json.loads(inside, parse_constant=refuse)
    assert figures[0]["lines"][0]["y"] == [1.0, 2.0, None, None]
    assert "<" not in script_json({"<": "&</script>"}) and json.loads(script_json({"<": "&"})) == {"<": "&"}


def test_missing_parts_leave_no_empty_boxes(tmp_path):
    bare = Estimate(value=3.25, method="FQE()", discount=0.9)
    path = write_report(bare, tmp_path / "report.html")
    page = Page(path.read_text(encoding="utf-8"))
    assert not {"difference", "inside", "time", "training", "pictures", "data"} & page.ids
    assert {"answer", "why", "run"} <= page.ids
    assert not [tag for tag, _ in page.elements if tag in ("figure", "img", "table")]
    assert "3.25" in page.words and "caution" in page.words
    assert "gives no interval" in page.words and "No checks were made" in page.words


def test_a_diverged_estimate_shows_no_number():
    check = Check("contraction", 1.2, 1.0, "distrust", "The spectral radius 1.2 is 1 or more.")
    lost = Estimate(
        math.nan,
        "LSPE()",
        0.99,
        status=Status.DIVERGED,
        checks=(check,),
        curves={"lspe": [1.0, 1e9, math.inf]},
    )
    words = Page(render(Comparison.of(lost))).words
    assert "diverged" in words and "no value" in words and "Do not believe it." in words
    assert "The iteration blew up" in words and check.meaning in words and "signed log axis" in words


def test_a_diverged_method_has_no_value_over_time():
    values = {"value_over_time": [1.0, 2.0]}
    lost = Estimate(math.nan, "m", 0.9, status=Status.DIVERGED, curves=values)
    assert "time" not in Page(render(Comparison.of(lost))).ids
    both = Page(render(Comparison({"p": {"lost": lost, "good": Estimate(1.0, "m", 0.9, curves=values)}})))
    assert (
        "time" in both.ids and sum(attrs.get("d", "").startswith("M0.0") for _, attrs in both.elements) == 1
    )


def test_a_distrusted_number_gets_no_probability():
    table = example()
    against = (Check("methods agree", 9.0, 2.0, "distrust", "They differ."),)
    words = Page(render(dataclasses.replace(table, checks={"new actor": against}))).words
    assert "the checks doubt it. Do not believe it." in words
    assert "+19.8 against" not in words and "+5.6 against" in words
    # Two of bold actor's methods are distrusted themselves.
    assert words.count("no basis for a decision") == 2 and words.count("lower bound") == 1 + 4


def test_training_that_all_policies_share_is_shown_once():
    shared = {"train/loss": [3.0, 2.0, 1.0]}
    estimate = Estimate(1.0, "m", 0.9, curves=shared)
    once = Page(render(Comparison({"p": {"m": estimate}, "q": {"m": estimate}})))
    assert sum(tag == "figure" for tag, _ in once.elements) == 1
    apart = dataclasses.replace(estimate, curves={"train/loss": [3.0, 2.0, 1.5]})
    twice = Page(render(Comparison({"p": {"m": estimate}, "q": {"m": apart}})))
    assert sum(tag == "figure" for tag, _ in twice.elements) == 2


def test_a_first_try_is_drawn_over_its_own_steps():
    value, first = {"train/step": [20.0, 400.0], "train/value": [1.0, 2.0]}, [30.0, 600.0]
    curves = value | {"train/first_try/value": [1.0, 3.0], "train/first_try/step": first}
    (panel,) = training_panels(Comparison({"p": {"m": Estimate(1.0, "m", 0.9, curves=curves)}}))
    assert {figure.title: figure.x.high for figure in panel.figures} == {
        "value": 400.0,
        "first_try/value": 600.0,
    }


def test_wild_intervals_and_constant_values_draw():
    wide = Estimate(
        1.0,
        "m",
        0.9,
        interval=Interval(-math.inf, math.inf),
        curves={"lspe": [2.0, 2.0], "singular_values": [0.0, 0.0]},
    )
    flat = Estimate(
        1.0,
        "m",
        0.9,
        interval=Interval(1.0, 1.0),
        curves={"leverage_data": [1.0, 1.0], "leverage_policy": [1.0, 1.0], "lspe": [3.0]},
    )
    page = Page(render(Comparison({"p": {"wide": wide, "flat": flat}})))
    assert sum(tag == "figure" for tag, _ in page.elements) == 3
    assert "nan" not in " ".join(str(a.get("style")) + str(a.get("d")) for _, a in page.elements)


def test_a_comparison_without_estimates_is_refused():
    with pytest.raises(BadInput, match="needs an estimate"):
        render(Comparison({"p": {}}))


def test_what_was_run_can_be_pasted():
    text = run_text(example())
    for line in ("seed: 7", "discount: 0.99", "dataset hash: 3f9ac1d2e7b04586", "method fqe: FQE()"):
        assert line in text.splitlines()
    assert text.startswith("command: bcrl compare") and "torch 2.13.0" in text


def test_the_page_is_light():
    assert len(render(example(pictures=False)).encode()) < 600_000
