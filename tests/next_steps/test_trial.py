"""Trials that may be looked at after every episode: how often they stop on a difference that is not there."""

import numpy as np
import pytest

from bcrl.errors import BadInput
from bcrl.next_steps.trial import episodes_to_settle, running_interval, trial


def wrong(bounds, draw, trials=150, episodes=300):
    """Share of trials whose running interval at some time leaves out the mean."""
    rng = np.random.default_rng(0)
    missed = 0
    for _ in range(trials):
        around = running_interval(draw(rng, episodes), bounds, 0.95)  # all times so far: their intersection
        missed += not around.low <= 0.3 <= around.high
    return missed / trials


@pytest.mark.parametrize(
    ("bounds", "draw"),
    [
        ((0.0, 1.0), lambda rng, n: (rng.random(n) < 0.3).astype(float)),
        (None, lambda rng, n: 0.3 + rng.standard_normal(n)),
    ],
)
def test_stopping_at_any_time_errs_in_at_most_one_of_twenty(bounds, draw):
    assert wrong(bounds, draw, trials=60 if bounds else 150) <= 0.07


def test_a_fixed_interval_looked_at_again_and_again_errs_more():
    """What the sequences are for: the usual interval, watched, is wrong far more often than it says."""
    rng, missed = np.random.default_rng(0), 0
    for _ in range(150):
        x = rng.standard_normal(300)
        t = np.arange(1, 301)
        half = 1.96 / np.sqrt(t)
        missed += bool((np.abs(np.cumsum(x) / t)[20:] > half[20:]).any())
    assert missed / 150 > 0.15


def test_a_trial_decides_when_there_is_something_to_see():
    rng = np.random.default_rng(1)
    log = rng.normal(0.0, 1.0, 500)
    assert trial(rng.normal(1.0, 1.0, 100), log).decision == "better"
    assert trial(rng.normal(-1.0, 1.0, 100), log).decision == "worse"
    assert trial(rng.normal(0.0, 1.0, 100), log, concurrent=True).decision == "cannot tell"
    assert trial(rng.normal(1.0, 1.0, 5), log).decision == "cannot tell"
    sure = trial((rng.random(200) < 0.9).astype(float), (rng.random(200) < 0.3) * 1.0, bounds=(0.0, 1.0))
    assert sure.decision == "better"
    assert sure.interval.low <= 0.9 <= sure.interval.high


def test_the_number_of_episodes_is_where_the_sequence_is_as_narrow_as_wanted():
    count = episodes_to_settle(2.0, 0.5)
    x = np.random.default_rng(0).normal(0.0, 2.0, count)
    around = running_interval(x, None, 0.95)
    assert (around.high - around.low) / 2.0 == pytest.approx(0.5, rel=0.3)
    assert 3.5 <= episodes_to_settle(2.0, 0.25) / count <= 5.5


def test_bounds_that_do_not_hold_are_refused():
    with pytest.raises(BadInput, match="do not hold the returns"):
        running_interval(np.array([0.0, 2.0]), (0.0, 1.0), 0.95)
