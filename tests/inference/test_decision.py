"""Decisions: right as often as they promise, simultaneous, silent without a budget; the winner shrunk."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

import bcrl
from bcrl.comparison import Comparison, Difference
from bcrl.estimate import Budget, Check, Entry, Estimate, Interval, Status
from bcrl.inference.budget import choice, decided, stretch, with_decisions
from bcrl.inference.contrast import agreement, difference_to
from bcrl_bench.worlds import lqr


def budgeted(value: float, half: float, *, scale: float = 10.0, level: float = 0.95, **more) -> Estimate:
    """A value with an honest interval, and a sampling interval half as wide."""
    entry = Entry("sampling", half, "Chance moves it.", "More episodes.")
    budget = Budget((entry,), Interval(value - half, value + half, level), scale, 1.0)
    around = Interval(value - half / 2, value + half / 2, level)
    return Estimate(value, "m", 0.9, interval=around, standard_error=half / 4, **{"budget": budget, **more})


LOGGED = Estimate(10.0, "logged returns", 0.9, interval=Interval(7.0, 13.0), standard_error=3.0 / 1.96)


def against_log(estimate: Estimate, compared: int = 1) -> Difference:
    return decided(difference_to(estimate, LOGGED), estimate, LOGGED, compared)


@pytest.mark.parametrize(
    ("value", "said"), [(15.1, "better"), (14.9, "cannot tell"), (5.1, "cannot tell"), (4.9, "worse")]
)
def test_zero_outside_the_honest_interval_decides(value, said):
    """Half widths of 4 and 3 make one of 5."""
    difference = against_log(budgeted(value, 4.0))
    assert difference.decision == said
    assert (difference.honest.high - difference.honest.low) / 2 == pytest.approx(5.0)
    assert difference.honest.level == 0.95


@pytest.mark.parametrize(("value", "said"), [(40.0, "better"), (-20.0, "worse")])
def test_a_value_beyond_the_log_counts_its_excess_once_on_the_logs_side(value, said):
    """Logged returns from 8 to 12; of a half width of 36, 30 are beyond the log: 6 on the log's side."""
    entries = (Entry("beyond the log", 30.0, "It lies beyond.", "Log."), Entry("sampling", 6.0, "c", "d"))
    budget = Budget(entries, Interval(value - 36.0, value + 36.0), 10.0, 1.0)
    numbers = {"evidence/lowest_return": 8.0, "evidence/highest_return": 12.0}
    difference = against_log(budgeted(value, 36.0, budget=budget, stats=numbers))
    assert difference.decision == said
    near, far = np.hypot(12.0, 3.0), np.hypot(36.0, 3.0)
    low, high = (near, far) if value > 0 else (far, near)
    assert difference.honest.low == pytest.approx(difference.value - low)
    assert difference.honest.high == pytest.approx(difference.value + high)
    assert difference.probability == pytest.approx(norm.cdf(difference.value / (near / 1.95996)), abs=1e-6)


def test_the_probability_is_that_of_the_honest_interval():
    at_the_edge = against_log(budgeted(15.0, 4.0))
    assert at_the_edge.probability == pytest.approx(0.975, abs=1e-4)
    assert against_log(budgeted(10.0, 4.0)).probability == pytest.approx(0.5)
    assert against_log(budgeted(5.0, 4.0)).probability == pytest.approx(0.025, abs=1e-4)
    assert at_the_edge.probability_better > 0.99, "sampling alone is surer"


def test_more_policies_need_a_clearer_difference():
    assert stretch(1) == 1.0
    assert stretch(5) == pytest.approx(2.5758 / 1.95996, rel=1e-4)
    estimate = budgeted(15.5, 4.0)
    assert against_log(estimate).decision == "better"
    assert against_log(estimate, compared=5).decision == "cannot tell"


def test_the_level_that_was_asked_for_changes_no_decision_and_no_verdict():
    wide = 4.0 * 2.5758 / 1.95996
    estimate, same = budgeted(15.1, 4.0), budgeted(15.1, wide, level=0.99)
    assert same.budget.half == pytest.approx(4.0, rel=1e-4)
    assert same.verdict == estimate.verdict == "caution"
    assert against_log(same).decision == against_log(estimate).decision == "better"


def test_without_a_budget_or_an_interval_there_is_no_decision():
    bare = replace(budgeted(30.0, 4.0), budget=None)
    assert against_log(bare).decision is None
    one_episode = replace(LOGGED, interval=None, standard_error=None)
    estimate = budgeted(30.0, 4.0)
    assert decided(Difference(20.0), estimate, one_episode, 1).decision is None


FAULT = Check("log_prob", None, None, "distrust", "The log contradicts itself.")


@pytest.mark.parametrize("broken", [{"checks": (FAULT,)}, {"status": Status.DIVERGED}])
def test_a_value_that_nobody_may_believe_decides_nothing(broken):
    lost = budgeted(30.0, 4.0, **broken)
    assert against_log(lost).decision == "cannot tell"
    assert against_log(lost).probability is None and against_log(lost).honest is None
    assert choice({"lost": lost, "good": budgeted(20.0, 1.0)}) is None
    diagnostic = budgeted(30.0, 4.0, checks=(replace(FAULT, binding=False),))
    assert against_log(diagnostic).decision == "better"


def test_decisions_of_several_policies_are_right_together():
    """Four policies worth as much as the log: in at most 5 % of logs is any called better or worse."""
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(1000):
        log = replace(LOGGED, value=10.0 + rng.normal(0, 3.0 / 1.96))
        row = [budgeted(10.0 + rng.normal(0, 4.0 / 1.96), 4.0) for _ in range(4)]
        told = [decided(difference_to(e, log), e, log, 4).decision for e in row]
        wrong += told != ["cannot tell"] * 4
    assert 0.01 < wrong / 1000 < 0.055


def test_the_winner_is_shrunk_by_what_choosing_adds():
    """Of k equal policies the highest estimate is too high by the mean of the largest of k normal errors."""
    for k, largest in ((2, 0.5642), (3, 0.8463), (10, 1.5388)):
        chosen = choice({str(i): budgeted(10.0, 1.96) for i in range(k)})
        assert chosen.surplus == pytest.approx(largest, abs=1e-3)
        assert chosen.value == pytest.approx(10.0 - chosen.surplus)
        assert list(chosen.best.values()) == pytest.approx([1.0 / k] * k)


def test_a_clear_winner_is_hardly_shrunk():
    chosen = choice({"low": budgeted(0.0, 2.0), "high": budgeted(20.0, 1.0)})
    assert chosen.winner == "high" and chosen.surplus == pytest.approx(0.0, abs=1e-6)
    assert chosen.best["high"] == pytest.approx(1.0, abs=1e-6)
    assert chosen.pairs == {"high": {"low": chosen.pairs["high"]["low"]}}
    assert chosen.pairs["high"]["low"].decision == "better"
    assert chosen.lower_bound == pytest.approx(20.0 - stretch(2))


def test_shrinking_takes_away_the_winners_bias_and_its_bound_holds():
    """Three policies whose true values differ little; the winner changes from log to log."""
    rng = np.random.default_rng(1)
    truth, error = np.array([10.0, 10.3, 9.8]), np.array([0.5, 1.0, 0.8])
    raw, shrunk, held = [], [], []
    for _ in range(1500):
        values = truth + error * rng.standard_normal(3)
        row = {str(i): budgeted(values[i], 1.95996 * error[i]) for i in range(3)}
        chosen = choice(row)
        true = truth[int(chosen.winner)]
        raw.append(row[chosen.winner].value - true)
        shrunk.append(chosen.value - true)
        held.append(chosen.lower_bound <= true)
    assert np.mean(raw) > 0.4
    # The estimates lie further apart than the truths, so a part stays.
    assert abs(np.mean(shrunk)) < 0.45 * np.mean(raw)
    assert np.mean(held) > 0.97


def test_an_error_of_nothing_is_no_trouble():
    chosen = choice({"a": budgeted(1.0, 0.0), "b": budgeted(2.0, 0.0)})
    assert chosen.winner == "b" and math.isfinite(chosen.surplus) and chosen.best["b"] == pytest.approx(1.0)
    same = decided(Difference(0.0), budgeted(1.0, 0.0), budgeted(1.0, 0.0), 2)
    assert same.decision == "cannot tell" and same.probability == pytest.approx(0.5)


def test_methods_are_compared_by_their_honest_intervals():
    near = {"one": budgeted(10.0, 2.0, scale=50.0), "other": budgeted(12.5, 2.0, scale=50.0)}
    assert [check.verdict for check in agreement(near)] == ["trust"]
    sampling = {name: replace(e, budget=None) for name, e in near.items()}
    for e in sampling.values():
        assert e.interval.high - e.interval.low == 2.0
    trusted = Check("c", 1.0, 1.0, "trust", "Fine.")
    sampling = {name: replace(e, checks=(trusted,)) for name, e in sampling.items()}
    assert [check.verdict for check in agreement(sampling)] == ["caution"]


def test_a_comparison_without_a_logged_value_still_has_a_winner():
    table = Comparison({"a": {"m": budgeted(1.0, 0.1)}, "b": {"m": budgeted(5.0, 0.1)}})
    chosen = with_decisions(table)
    assert chosen.choices["m"].winner == "b" and chosen.differences == {}
    single = with_decisions(Comparison({"a": {"m": budgeted(1.0, 0.1)}}))
    assert single.choices == {}


def test_compare_decides_and_its_json_keeps_it():
    world = lqr()
    dataset = world.dataset(60, 15, seed=0)
    table = bcrl.compare(
        dataset,
        {"new": world.target, "still": lambda x: np.zeros((len(x), dataset.actions.shape[1]))},
        discount=0.9,
        horizon=10,
        methods={"random": "LSPE(RandomFeatures(dim=20))"},
    )
    for policy in ("new", "still"):
        difference = table.differences[policy]["random"]
        assert difference.decision in ("better", "worse", "cannot tell")
        assert difference.honest.low < difference.value < difference.honest.high
        assert table.estimates[policy]["random"].budget is not None
    assert set(table.choices["random"].best) == {"new", "still"}
    again = Comparison.from_json(table.to_json())
    assert again.choices == table.choices and again.differences == table.differences
    assert [e["random"].budget for e in again.estimates.values()] == [
        e["random"].budget for e in table.estimates.values()
    ]
