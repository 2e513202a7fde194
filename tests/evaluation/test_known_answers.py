"""A value that no episode could earn, and a miss of the one value that the log knows, are never trusted
(F15, F16).

Seen on 1cdf397, on the same `hospital` and a method that says a number: 1.25, -0.2 and 1.1 (+- 0.4) are all
"trust". What weights did there is in test_sepsis_log.py.
"""

import dataclasses

import numpy as np
import pytest

import bcrl
from bcrl.inference.contrast import possible_returns
from bcrl_bench.worlds import lqr, random_tabular


class Says:
    """A method that says one number, with a standard error."""

    def __init__(self, value, error=0.01):
        self.value, self.error = value, error

    def estimate(self, question, run):
        around = bcrl.Interval(self.value - 2 * self.error, self.value + 2 * self.error)
        check = bcrl.Check("asked", 0.0, 0.0, "trust", "It was asked.")
        return {
            name: bcrl.Estimate(
                self.value,
                "says",
                question.discount,
                horizon=question.horizon,
                interval=around,
                standard_error=self.error,
                checks=(check,),
            )
            for name in question.targets
        }


def hospital(seed=0):
    """Stays of a few days; 1 for those who leave alive, nothing before."""
    rng = np.random.default_rng(seed)
    rows = [(rng.integers(5), rng.integers(3), t == n - 1) for n in rng.integers(2, 9, 300) for t in range(n)]
    states, actions, last = (np.array(column) for column in zip(*rows, strict=True))
    rewards = last * (rng.random(len(last)) < 0.7 + 0.02 * states)
    return bcrl.Dataset.from_arrays(np.eye(5)[states], actions, rewards, last)


def never(x):
    return np.zeros(len(x), dtype=int)


@pytest.mark.parametrize(("value", "possible"), [(1.25, False), (0.6, True), (-0.2, False)])
def test_a_value_that_no_stay_can_earn(value, possible):
    estimate = bcrl.evaluate(hospital(), never, discount=0.95, method=Says(value))
    assert (estimate.verdict == "distrust") is not possible
    assert any("no episode can earn" in reason for reason in estimate.reasons) is not possible


def test_a_value_just_outside_that_its_interval_explains_is_a_caution():
    estimate = bcrl.evaluate(hospital(), never, discount=0.95, method=Says(1.1, 0.2))
    assert next(c for c in estimate.checks if c.name == "possible value").verdict == "caution"
    assert estimate.verdict != "trust"


def test_the_ends_of_what_can_be_earned():
    data = hospital()
    assert possible_returns(data, 0.95, None) == (0.0, 1.0)
    steady = dataclasses.replace(data, rewards=np.ones(len(data)))
    assert possible_returns(steady, 0.9, None) == pytest.approx((1.0, 10.0))
    assert possible_returns(steady, 0.9, 2) == pytest.approx((1.0, 1.9))
    assert possible_returns(steady, 1.0, 7) == pytest.approx((1.0, 7.0))
    for world in (lqr(), random_tabular()):
        low, high = possible_returns(world.dataset(100, 30, 0), 0.9, None)
        assert low < world.value < high


@pytest.mark.parametrize("off", [0.0, 0.5])
def test_the_logging_policy_is_worth_what_it_earned(off):
    world = random_tabular()
    data = world.dataset(300, 80, 0)
    logged = bcrl.compare(data, {"p": world.target}, discount=0.9, methods={"m": Says(1.0)}).logged.value
    estimate = bcrl.evaluate(data, world.behaviour, discount=0.9, method=Says(logged * (1 + off)))
    assert estimate.verdict == ("distrust" if off else "trust")
    assert any("own returns" in check.meaning for check in estimate.checks if check.binding)
    other = bcrl.evaluate(data, world.target, discount=0.9, method=Says(logged * (1 + off)))
    assert "logging policy" not in {check.name for check in other.checks}


def test_weights_that_do_not_average_to_one_are_not_trusted():
    world = random_tabular()
    data = world.dataset(200, 40, 0)
    right = bcrl.evaluate(data, world.behaviour, discount=0.5, method=bcrl.ImportanceSampling())
    assert next(c for c in right.checks if c.name == "mean weight").verdict == "trust"
    claimed = dataclasses.replace(data, log_prob=data.log_prob + 0.3)
    wrong = bcrl.evaluate(claimed, world.behaviour, discount=0.5, method=bcrl.ImportanceSampling())
    assert next(c for c in wrong.checks if c.name == "mean weight").verdict == "distrust"
