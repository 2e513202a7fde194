"""What is said beside a value that is not trusted: on the estimate, in JSON, on the page, on the terminal."""

import re
import time
from dataclasses import replace

import numpy as np
import pytest
from test_guard import point_log, wild

import bcrl
from bcrl.commands.showing import print_comparison
from bcrl.comparison import Comparison, Difference
from bcrl.estimate import Interval, Status
from bcrl.estimators.consensus import Consensus
from bcrl.next_steps.advice import advice, bound_steps
from bcrl.next_steps.bounds import bounds
from bcrl.policies import load_policy
from bcrl.policies.policy import resolve_policy
from bcrl.question import Question
from bcrl.report.page import render
from bcrl.training import Run, silent


@pytest.fixture(scope="module")
def compared():
    return bcrl.compare(
        point_log(episodes=30),
        {"wild": wild},
        discount=0.8,
        methods={"views": Consensus()},
        quiet=True,
        next_steps=True,
    )


def test_a_doubted_policy_gets_bounds_a_guard_and_a_trial(compared):
    assert compared.estimates["wild"]["views"].verdict != "trust"
    steps = {step.name: step for step in compared.next_steps["wild"]}
    assert list(steps)[:3] == ["bounds", "followed", "guarded"] and list(steps)[-1] == "trial"
    low, high = steps["bounds"].numbers["low"], steps["bounds"].numbers["high"]
    assert low < compared.logged.value
    said = [
        float(x.replace("\u2212", "-"))
        for x in re.findall(r"worth (\S+), at best (\S+),", steps["bounds"].text)[0]
    ]
    assert said == pytest.approx([low, high], rel=0.05, abs=0.05)
    assert 0.2 < steps["followed"].numbers["within"] < 0.95
    assert steps["trial"].numbers["episodes"] >= 20
    guarded = steps["guarded"]
    assert 0.2 < guarded.numbers["followed"] < 1.0 and guarded.verdict is not None
    assert guarded.numbers["low"] < guarded.numbers["value"] < guarded.numbers["high"]


def test_a_trusted_and_decided_policy_gets_nothing(compared):
    answer = compared.estimates["wild"]["views"]
    assert answer.budget is not None
    near = Interval(answer.value - 1e-6, answer.value + 1e-6)
    budget = replace(answer.budget, honest=near)
    log = point_log(episodes=30)
    question = Question.of(log, {"wild": resolve_policy(log, load_policy(wild))}, discount=0.8)
    trusted = replace(answer, budget=budget, checks=())
    decided = Difference(1.0, decision="better")
    assert advice(question, "wild", trusted, decided, compared.logged) == ()
    open_ = advice(question, "wild", trusted, Difference(1.0, decision="cannot tell"), compared.logged)
    assert [step.name for step in open_] == ["trial"]


def test_json_page_and_terminal_say_the_same_lines(compared, capsys):
    again = Comparison.from_json(compared.to_json())
    assert again.next_steps == compared.next_steps
    page = render(again)
    print_comparison(again)
    told = " ".join(capsys.readouterr().out.split())
    for step in compared.next_steps["wild"]:
        assert step.text in page.replace("&#39;", "'")
        assert step.text.replace("−", "-").replace("’", "'") in told
    assert "What you can do" in page
    assert "What you can do" not in render(replace(again, next_steps={}))


def test_who_reads_nothing_but_the_value_can_leave_it_out():
    asked = {"discount": 0.8, "method": Consensus(), "quiet": True}
    assert bcrl.evaluate(point_log(episodes=30), wild, **asked).next_steps != ()
    assert bcrl.evaluate(point_log(episodes=30), wild, **asked, next_steps=None).next_steps == ()


def test_a_log_that_paid_the_same_everywhere_gives_no_bounds():
    log = point_log(episodes=20)
    # With labels of cohorts, which the pieces of a halted log have no use for.
    log = replace(log, rewards=np.full(len(log), -1.0), cohort=np.repeat(["a", "b"], 10))
    question = Question.of(log, {"wild": resolve_policy(log, load_policy(wild))}, discount=0.8)
    found = bounds(question, question.targets["wild"], Consensus(), Run(show=silent))
    (worth, _) = bound_steps(found)
    assert worth.numbers == {} and "Say the least and the most" in worth.text
    assert bounds(
        question, question.targets["wild"], Consensus(), Run(show=silent), rewards=(-5.0, 0.0)
    ).known


def test_the_lines_take_less_time_than_the_quickest_answer():
    log = point_log(episodes=100)
    clock = time.process_time()
    answer = bcrl.compare(
        log, {"new": lambda x: -0.3 * x}, discount=0.8, methods={"views": Consensus()}, quiet=True
    ).estimates["new"]["views"]
    whole = time.process_time() - clock
    question = Question.of(log, {"wild": resolve_policy(log, load_policy(wild))}, discount=0.8)
    clock = time.process_time()
    assert advice(question, "wild", replace(answer, status=Status.DIVERGED), None, None)
    assert time.process_time() - clock < whole
