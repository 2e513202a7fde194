"""What the doctor finds in the log or in a policy is among the estimate's reasons, and enters the verdict."""

import dataclasses

import numpy as np
import pytest

import bcrl
from bcrl.comparison import Comparison
from bcrl.doctor import Bearing, Finding
from bcrl.inference.checks import doubts
from bcrl.report import write_report
from bcrl_bench.worlds import lqr, random_tabular

RANDOM = bcrl.LSPE(bcrl.RandomFeatures(dim=100))
FOUND = {"copied episodes", "time limits marked as ends", "actions beyond the log's", "one reward far out"}


def names(estimate):
    return {check.name for check in estimate.checks}


def copied(dataset, times):
    return dataset.select(np.tile(np.arange(dataset.num_episodes), times))


@pytest.fixture(scope="module")
def copies():
    world = lqr()
    methods = {"random": RANDOM, "fqe": bcrl.FQE(steps=20)}
    return bcrl.compare(
        copied(world.dataset(60, 20, 0), 3), {"a": world.target}, discount=0.9, methods=methods
    )


def test_a_warning_about_the_log_is_a_reason_in_every_method(copies):
    for estimate in copies.estimates["a"].values():
        assert "copied episodes" in names(estimate)
        assert estimate.verdict != "trust"
        assert any("repeat another" in reason for reason in estimate.reasons)


def test_json_terminal_and_page_show_it(copies, tmp_path, capsys):
    from bcrl.commands.showing import print_comparison

    again = Comparison.from_json(copies.to_json())
    assert "copied episodes" in names(again.estimates["a"]["random"])
    print_comparison(again)
    assert "repeat another" in " ".join(capsys.readouterr().out.split())
    page = write_report(again, tmp_path / "page.html")
    assert page.read_text().count("repeat another") >= 2  # among the findings, and among the reasons


def test_a_healthy_log_gives_no_reason():
    for world in (random_tabular(), lqr()):
        estimate = bcrl.evaluate(world.dataset(300, 40, 0), world.target, discount=0.9, method=RANDOM)
        assert not names(estimate) & FOUND


def test_a_finding_about_a_policy_concerns_that_policy_alone():
    world = lqr()
    data = world.dataset(60, 20, 0)
    far = np.full((1, data.actions.shape[1]), 50.0)
    policies = {"near": world.target, "far": lambda x: np.repeat(far, len(x), axis=0)}
    table = bcrl.compare(data, policies, discount=0.9, methods={"random": RANDOM})
    assert "actions beyond the log's" in names(table.estimates["far"]["random"])
    assert table.estimates["far"]["random"].verdict == "distrust"
    assert "actions beyond the log's" not in names(table.estimates["near"]["random"])


def ended(dataset, clock=False):
    """The same episodes, their time limit marked as the end of the world."""
    observations = dict(dataset.observations)
    if clock:
        rows = np.arange(dataset.num_observations) - dataset.first_row
        observations = {key: np.column_stack([value, rows]) for key, value in observations.items()}
    return dataclasses.replace(
        dataset, observations=observations, terminated=dataset.truncated, truncated=dataset.terminated
    )


def test_an_end_that_lies_beyond_the_question_is_no_reason():
    world, data = lqr(), ended(lqr().dataset(60, 20, 0))
    limits = "time limits marked as ends"
    assert limits in names(bcrl.evaluate(data, world.target, discount=0.9, method=RANDOM))
    for question in ({"discount": 0.9, "horizon": 20}, {"discount": 0.5}):
        assert limits not in names(bcrl.evaluate(data, world.target, method=RANDOM, **question))


def test_an_observation_that_shows_the_end_makes_it_no_odd_one():
    clocked = ended(lqr().dataset(60, 20, 0), clock=True)
    zero = lambda x: np.zeros((len(x), clocked.actions.shape[1]))  # noqa: E731
    estimate = bcrl.evaluate(clocked, zero, discount=0.9, method=RANDOM)
    assert "time limits marked as ends" not in names(estimate)


def test_only_methods_that_read_log_prob_hear_of_it():
    finding = Finding("warning", "What.", "there", "Do.", Bearing("log_prob", "distrust", log_prob=True))
    asked = {"discount": 0.9, "horizon": None}
    assert [c.verdict for c in doubts([finding], "a", log_prob=True, **asked)] == ["distrust"]
    assert not list(doubts([finding], "a", log_prob=False, **asked))
    assert bcrl.ImportanceSampling().reads_log_prob and bcrl.DoublyRobust().reads_log_prob


def test_a_reason_that_a_method_gives_itself_is_told_once():
    world = lqr()
    estimate = bcrl.evaluate(world.dataset(6, 40, 0), world.target, discount=0.9, method=RANDOM)
    assert [check.name for check in estimate.checks].count("independent units") == 1
