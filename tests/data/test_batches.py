"""Batches hold the right rows, all of them, in an order that the caller's seed decides."""

import threading

import numpy as np
import pytest
from data.made_datasets import plain

from bcrl import BadInput, Dataset
from bcrl.data.batches import segment_starts, segments, shuffled, take, take_segments
from bcrl.data.build.combine import concatenate
from bcrl.data.storage.folder import open_folder, save
from bcrl_bench.speed.reference import pixels_bare


@pytest.fixture
def frames():
    """Episodes of 1, 2 and 9 steps with frames and a state that says which row it is."""
    generator = np.random.default_rng(0)
    made, row = [], 0
    for length in (1, 2, 9):
        made.append(
            {
                "observations": {
                    "pixels": generator.integers(0, 256, (length + 1, 6, 5, 3), dtype=np.uint8),
                    "state": np.arange(row, row + length + 1.0)[:, None],
                },
                "actions": generator.normal(size=(length, 2)),
                "rewards": np.arange(row, row + length),
                "terminated": length == 2,
            }
        )
        row += length + 1
    return Dataset.from_episodes(made, stack=3)


def test_every_transition_once_and_none_dropped(frames):
    batches = list(shuffled(frames, 5, np.random.default_rng(0)))
    assert [len(b.index) for b in batches] == [5, 5, 2]
    assert sorted(np.concatenate([b.index for b in batches])) == list(range(12))


def test_a_batch_holds_s_a_r_and_the_s_that_follows(frames):
    for batch in shuffled(frames, 4, np.random.default_rng(1)):
        assert (batch.observations["state"][:, 0] == frames.rows[batch.index]).all()
        assert (batch.next_observations["state"] == batch.observations["state"] + 1).all()
        assert (batch.rewards == batch.observations["state"][:, 0]).all()
        assert (batch.actions == frames.actions[batch.index]).all()
        assert (batch.terminated == frames.terminated[batch.index]).all()


@pytest.mark.parametrize("stack", [1, 2, 3, 4])
def test_pairs_equal_two_single_looks_and_the_reference(frames, stack):
    data = Dataset(**{**frames.__dict__, "stack": stack})
    rows = data.rows[np.arange(12)]
    batch = take(data, np.arange(12))
    expected = pixels_bare.pairs(data.observations["pixels"], rows, data.first_row, stack)
    for ours, look, reference in (
        (batch.observations, data.observe(rows), expected[0]),
        (batch.next_observations, data.observe(rows + 1), expected[1]),
    ):
        assert (ours["pixels"] == look["pixels"]).all() and (ours["pixels"] == reference).all()
        assert ours["pixels"].flags.c_contiguous
    gathered = pixels_bare.gather(data.observations["pixels"], rows, data.first_row, stack)
    assert (gathered[1].transpose(0, 2, 3, 1, 4).reshape(expected[1].shape) == expected[1]).all()


def test_large_frames_take_several_blocks():
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (40, 84, 84, 3), dtype=np.uint8)
    data = Dataset.from_arrays(**plain(observations={"pixels": pixels}), stack=3)
    batch = take(data, np.arange(len(data)))
    expected = pixels_bare.pairs(data.observations["pixels"], data.rows, data.first_row, 3)
    assert (batch.observations["pixels"] == expected[0]).all()
    assert (batch.next_observations["pixels"] == expected[1]).all()


def test_the_seed_decides_and_the_thread_does_not(frames):
    def order(seed, **options):
        return [
            b.index.tolist() for b in shuffled(frames, 5, np.random.default_rng(seed), passes=3, **options)
        ]

    assert order(0) == order(0, ahead=0) == order(0, ahead=5) != order(1)
    assert order(0, skip=4) == order(0)[4:]


def test_for_ever_and_stopped_early_leaves_no_thread(frames):
    endless = shuffled(frames, 5, np.random.default_rng(0), passes=None)
    assert len([next(endless) for _ in range(20)]) == 20
    endless.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("bcrl-batches")]


def test_a_failure_in_the_thread_reaches_the_caller(frames):
    broken = Dataset(**{**frames.__dict__, "actions": frames.actions[:3]})
    with pytest.raises(IndexError):
        list(shuffled(broken, 5, np.random.default_rng(0)))


def test_segments_stay_inside_their_episode(frames):
    assert segment_starts(frames, 2).tolist() == [1, 3, 4, 5, 6, 7, 8, 9, 10]
    seen = list(segments(frames, 4, 2, np.random.default_rng(0)))
    assert sorted(np.concatenate([s.index for s in seen])) == segment_starts(frames, 2).tolist()
    for batch in seen:
        steps = batch.observations["state"][..., 0]
        assert (np.diff(steps, axis=1) == 1).all() and (batch.rewards == steps[:, :-1]).all()
        assert batch.observations["pixels"].shape[1:] == (3, 6, 5, 9)
        assert (frames.episode_of[batch.index] == frames.episode_of[batch.index + 1]).all()
    whole = take_segments(frames, np.array([3]), 9)
    assert whole.observations["state"].shape == (1, 10, 1) and whole.actions.shape == (1, 9, 2)


def test_segments_in_order_and_too_long(frames):
    in_order = np.concatenate([s.index for s in segments(frames, 4, 2, None)])
    assert in_order.tolist() == segment_starts(frames, 2).tolist()
    with pytest.raises(BadInput, match=r"No episode has 10 steps; the longest has 9"):
        segments(frames, 4, 10, None)
    rows = np.zeros((3, 1))
    unordered = Dataset.from_transitions(rows, rows, np.zeros(3), rows, np.zeros(3))
    with pytest.raises(BadInput, match="whole episodes"):
        segments(unordered, 4, 1, None)


def test_mixtures_and_folders_give_the_same_batches(frames, tmp_path):
    for number in range(2):
        save(frames.select(np.arange(3)), tmp_path / str(number))
    mixed = concatenate([open_folder(tmp_path / "0"), open_folder(tmp_path / "1")])
    for ours, single in zip(
        shuffled(mixed, 24, np.random.default_rng(0)),
        shuffled(frames, 12, np.random.default_rng(0)),
        strict=True,
    ):
        for half in (slice(0, 12), slice(12, 24)):
            assert (ours.next_observations["pixels"][half] == single.next_observations["pixels"]).all()
