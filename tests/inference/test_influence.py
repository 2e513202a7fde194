"""Influences: variance and degrees of freedom, pairing, and the one array that an estimate keeps."""

import numpy as np
import pytest

from bcrl.estimate import Estimate
from bcrl.inference.intervals import Influence, paired, sum_by_unit


def test_degrees_of_freedom_fall_when_few_units_carry_the_error():
    units = np.random.default_rng(0).normal(size=400)
    assert 250 < Influence(units).degrees_of_freedom <= 399
    units[0] = 60.0
    assert Influence(units).degrees_of_freedom < 10
    assert Influence(np.zeros(5)).degrees_of_freedom == 4.0


def test_agreeing_trainings_narrow_nothing_and_quarrelling_ones_have_two_degrees_of_freedom():
    units = np.random.default_rng(0).normal(size=5)
    tiny, huge = (Influence(units, np.array([1.0, -1.0, 0.5]) * size) for size in (1e-9, 1e9))
    assert tiny.degrees_of_freedom == pytest.approx(Influence(units).degrees_of_freedom, rel=1e-6)
    assert huge.degrees_of_freedom == pytest.approx(2.0, rel=1e-6)


def test_an_estimate_keeps_units_first_and_counts_its_trainings():
    kept = Influence(np.array([1.0, 2.0]), np.array([3.0]))
    assert kept.variance == 14.0
    estimate = Estimate(0.0, "m", 0.9, influence=kept.array, stats={"trainings": 1.0})
    again = Influence.of(Estimate.from_json(estimate.to_json()))
    np.testing.assert_array_equal(again.units, [1.0, 2.0])
    np.testing.assert_array_equal(again.trainings, [3.0])
    assert Influence.of(Estimate(0.0, "m", 0.9)) is None


def test_a_difference_pairs_units_and_trainings():
    """A method that trained once has no part of any training; other units cannot be paired."""
    three, once = Influence(np.ones(2), np.array([1.0, 2.0, 3.0])), Influence(np.array([1.0, 0.0]))
    left, right = paired([three, once])
    np.testing.assert_array_equal((left - right).array, [0.0, 1.0, 1.0, 2.0, 3.0])
    assert paired([three, Influence(np.ones(5))]) is None
    assert paired([three, None]) is None


def test_parts_of_a_unit_add_up():
    found = sum_by_unit(np.array([1.0, 2.0, 4.0]), np.array([0, 1, 0]), 2)
    np.testing.assert_allclose(found, np.array([5.0, 2.0]) * np.sqrt(2.0))
    np.testing.assert_array_equal(sum_by_unit(np.ones(2), np.zeros(2, dtype=int), 1), [2.0])
