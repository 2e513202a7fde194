"""The difference to the logged policy compares like with like, or is withheld everywhere (F6)."""

import json

import numpy as np
import pytest

import bcrl
from bcrl.comparison import Comparison
from bcrl.inference.contrast import not_alike, unseen_share
from bcrl.policies.policy import resolve_policy
from bcrl.question import Question
from bcrl.report import write_report
from bcrl_bench.worlds import lqr
from bcrl_bench.worlds.findings import f6_truncated_tail

RANDOM = bcrl.LSPE(bcrl.RandomFeatures(dim=50))
ASKED = {"methods": {"random": RANDOM}}


@pytest.fixture(scope="module")
def case():
    return f6_truncated_tail()


@pytest.fixture(scope="module")
def log(case):
    return bcrl.Dataset.from_arrays(**case.arrays)


@pytest.fixture(scope="module")
def whole(case, log):
    return bcrl.compare(log, {"new": case.policy}, discount=0.9, **ASKED)


def test_a_tail_that_the_records_lack_withholds_the_difference(whole):
    assert whole.differences == {}
    assert "stop while the world goes on" in whole.withheld


def test_json_terminal_and_page_withhold_it_alike(whole, tmp_path, capsys):
    from bcrl.commands.showing import print_comparison

    text = whole.to_json()
    again = Comparison.from_json(text)
    assert again.withheld == whole.withheld and json.loads(text)["differences"] == {}
    print_comparison(again)
    printed = " ".join(capsys.readouterr().out.split())
    assert "stop while the world goes on" in printed and "at least" not in printed
    page = write_report(again, tmp_path / "page.html").read_text()
    assert "stop while the world goes on" in page
    assert "better with probability" not in page and "lower bound <b>" not in page


def test_the_same_steps_on_both_sides_are_compared(case, log):
    table = bcrl.compare(log, {"new": case.policy}, discount=0.9, horizon=10, **ASKED)
    difference = table.differences["new"]["random"]
    assert table.withheld == "" and difference.value == pytest.approx(0.0, abs=0.1)


def test_a_horizon_beyond_the_records_is_withheld(case, log):
    policies = {"new": resolve_policy(log, case.policy)}
    assert not_alike(Question.of(log, policies, discount=0.9, horizon=20))
    assert not not_alike(Question.of(log, policies, discount=0.9, horizon=10))


def test_records_that_show_nearly_everything_are_compared():
    world = lqr()
    table = bcrl.compare(world.dataset(30, 60, 0), {"new": world.target}, discount=0.9, **ASKED)
    assert table.withheld == "" and table.differences["new"]["random"].paired


def test_other_start_states_are_not_the_logs(case, log):
    asked = {"discount": 0.9, "horizon": 10, **ASKED}
    other = bcrl.compare(log, {"new": case.policy}, starts=np.full((5, 1), 2.0), **asked)
    assert other.differences == {} and "start states" in other.withheld
    own = log.start_observations()["observation"]
    same = bcrl.compare(log, {"new": case.policy}, starts=own, **asked)
    assert same.withheld == "" and same.differences["new"]["random"].value == pytest.approx(0.0, abs=0.1)


def test_the_unseen_share_of_the_discounted_steps(log):
    assert unseen_share(log, 0.9, None) == pytest.approx(0.9**10)
    assert unseen_share(log, 0.9, 10) == 0.0
    assert unseen_share(log, 1.0, 20) == pytest.approx(0.5)
    assert unseen_share(log, 0.9, 20) == pytest.approx((0.9**10 - 0.9**20) / (1 - 0.9**20))
