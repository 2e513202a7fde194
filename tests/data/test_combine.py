"""Mixtures."""

import numpy as np
import pytest
from data.made_datasets import assert_same, datasets, plain
from hypothesis import given, settings
from hypothesis import strategies as st

from bcrl import BadInput, Dataset
from bcrl.data.build.combine import concatenate
from bcrl.data.frames import LazyRows
from bcrl.data.select import split
from bcrl.data.storage.folder import open_folder, save


@settings(max_examples=60, deadline=None)
@given(data=datasets(), cut=st.integers(0, 5))
def test_parts_make_the_whole_again(data, cut):
    parts = [
        np.arange(0, min(cut, data.num_episodes)),
        np.arange(min(cut, data.num_episodes), data.num_episodes),
    ]
    whole = concatenate([data.select(part) for part in parts if len(part)])
    assert_same(whole, data)


def test_mixtures_and_parts_leave_frames_on_disk(tmp_path):
    frames = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)
    for number in range(2):
        save(
            Dataset.from_arrays(**plain(seed=number, observations={"pixels": frames + number})),
            tmp_path / str(number),
        )
    opened = [open_folder(tmp_path / str(number)) for number in range(2)]
    mixed = concatenate(opened)
    first, second = split(mixed, 0.5, seed=0)
    for data in (mixed, first, second, concatenate([first, second])):
        pixels = data.observations["pixels"]
        assert isinstance(pixels, LazyRows) and all(isinstance(part.base, np.memmap) for part in pixels.parts)
    assert (mixed.observations["pixels"][40:42] == opened[1].observations["pixels"][:2]).all()
    assert (np.asarray(mixed.observations["pixels"])[-1] == opened[1].observations["pixels"][-1]).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"actions": np.zeros(40, dtype=int)}, "discrete"),
        ({"observations": np.zeros((40, 4))}, "shape"),
        ({"observations": {"a": np.zeros((40, 3))}}, "single"),
        ({"log_prob": np.zeros(40)}, "log_prob"),
        ({"stack": 2}, "stack"),
    ],
)
def test_datasets_of_two_kinds_do_not_mix(change, words):
    with pytest.raises(BadInput, match=words):
        concatenate([Dataset.from_arrays(**plain()), Dataset.from_arrays(**plain(**change))])


def test_a_log_without_behaviour_labels_is_of_a_policy_of_its_own():
    labelled = Dataset.from_arrays(**plain(behaviour=["a", "a", "b", "b"]))
    other = Dataset.from_arrays(**plain(seed=1))
    assert concatenate([other, other]).behaviour is None
    mixed = concatenate([labelled, other, labelled])
    assert mixed.behaviour.tolist() == [*"aabb", *["unlabelled log 1"] * 4, *"aabb"]
    assert mixed.select(np.array([4, 2])).behaviour.tolist() == ["unlabelled log 1", "b"]
    again = concatenate([mixed, other]).behaviour.tolist()
    assert again[-1] == "unlabelled log 2" and again[:-4] == mixed.behaviour.tolist()
    assert mixed.template().behaviour is None


def test_groups_stay_with_their_episodes():
    grouped, other = Dataset.from_arrays(**plain(cohort=["a", "a", "b", "b"])), Dataset.from_arrays(**plain())
    assert concatenate([grouped, other]).cohort.tolist() == [*"aabb", *["unlabelled log 1"] * 4]
    assert concatenate([other, other]).cohort is None


def test_labels_of_one_dataset_do_not_cling_to_another():
    labelled = Dataset.from_arrays(**plain(cluster=["a", "a", "b", "b"]))
    mixed = concatenate([labelled, Dataset.from_arrays(**plain(seed=1)), labelled])
    assert int(mixed.units.max()) + 1 == 2 + 4
