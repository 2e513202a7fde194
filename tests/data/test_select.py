"""Parts by unit: nothing is on both sides, rows belong to their episodes, the same seed gives the same
parts.
"""

import numpy as np
import pytest
from data.made_datasets import assert_same, datasets, plain
from hypothesis import given, settings
from hypothesis import strategies as st

from bcrl import BadInput, Dataset
from bcrl.data.select import folds, sample_halves, some_episodes, split, split_units


@settings(max_examples=60, deadline=None)
@given(data=datasets(), fraction=st.floats(0.05, 0.95), seed=st.integers(0, 100))
def test_a_split_shares_no_cluster_and_loses_nothing(data, fraction, seed):
    if data.num_units < 2:
        with pytest.raises(BadInput, match="one independent unit"):
            split(data, fraction, seed)
        return
    parts = split(data, fraction, seed)
    assert sorted(np.concatenate([p.rewards for p in parts])) == sorted(data.rewards)
    if data.cluster is not None:
        assert not set(parts[0].cluster.tolist()) & set(parts[1].cluster.tolist())
    again = split(data, fraction, seed)
    assert_same(parts[0], again[0])


@settings(max_examples=60, deadline=None)
@given(data=datasets(), fraction=st.floats(0.05, 0.95), seed=st.integers(0, 100))
def test_transitions_are_split_as_datasets_are(data, fraction, seed):
    first, second = split_units(data, fraction, seed)
    np.testing.assert_array_equal(np.sort(np.concatenate([first, second])), np.arange(len(data)))
    if data.num_units >= 2:
        parts = split(data, fraction, seed)
        np.testing.assert_array_equal(data.rewards[first], parts[0].rewards)
        np.testing.assert_array_equal(data.rewards[second], parts[1].rewards)


@settings(max_examples=60, deadline=None)
@given(data=datasets(), transitions=st.integers(1, 40), seed=st.integers(0, 100))
def test_rows_of_a_part_are_its_observations(data, transitions, seed):
    part, rows = some_episodes(data, transitions, seed)
    assert len(part) >= min(transitions, len(data))
    for key, value in data.observe(rows).items():
        np.testing.assert_array_equal(part.observe(np.arange(part.num_observations))[key], value)


def test_folds():
    data = Dataset.from_arrays(**plain())
    [(learn, judge)] = folds(data, "none", 0)
    assert learn.dataset is data and judge.dataset is data
    np.testing.assert_array_equal(data.actions[learn.rows], data.actions)
    [(left, right)] = folds(data, "half", 0)
    assert len(left.dataset) + len(right.dataset) == len(data)
    assert not set(left.rows.tolist()) & set(right.rows.tolist())
    there, back = folds(data, "cross", 0)
    np.testing.assert_array_equal(there[0].rows, back[1].rows)
    np.testing.assert_array_equal(there[1].rows, back[0].rows)
    np.testing.assert_array_equal(there[0].rows, left.rows)
    with pytest.raises(BadInput, match="at least 4 episodes or clusters; got 3"):
        folds(data.select(np.arange(3)), "half", 0)


def test_halves_are_sampled_apart():
    data = Dataset.from_arrays(**plain())
    fit, held = sample_halves(data, 7, np.random.default_rng(0), 0)
    assert len(fit) == len(held) == 7
    assert not set(data.episode_of[fit].tolist()) & set(data.episode_of[held].tolist())


def test_one_unit_is_split_in_time():
    data = Dataset.from_arrays(**plain()).select(np.arange(1))
    first, second = split_units(data, 0.3, 0)
    assert first.max() < second.min()


def test_fraction_counts_units():
    data = Dataset.from_arrays(**plain(400, terminated=np.arange(400) % 10 == 9, truncated=None))
    first, second = split(data, 0.7, seed=3)
    assert (first.num_episodes, second.num_episodes) == (28, 12)
    assert not np.array_equal(first.rewards, split(data, 0.7, seed=4)[0].rewards)
