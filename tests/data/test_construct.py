"""Plain arrays in, the layout of T + 1 observations out."""

import numpy as np
import pytest
from data.made_datasets import plain

from bcrl import BadInput, Dataset

ROWS = np.arange(10.0)[:, None]
TERMINATED = np.isin(np.arange(10), [3])
TRUNCATED = np.isin(np.arange(10), [4, 7])


def ten(**changes):
    arrays = {"observations": ROWS, "actions": np.zeros((10, 1)), "rewards": np.arange(10.0)}
    return Dataset.from_arrays(**arrays | {"terminated": TERMINATED, "truncated": TRUNCATED} | changes)


def test_without_next_observations_a_cut_episode_loses_its_last_row():
    data = ten()
    assert data.offsets.tolist() == [0, 4, 6, 7]
    # The terminated episode keeps its four rows and repeats its last observation; row 4 was alone and goes
    # entirely.
    assert data.observations["observation"].ravel().tolist() == [0, 1, 2, 3, 3, 5, 6, 7, 8, 9]
    assert data.rewards.tolist() == [0, 1, 2, 3, 5, 6, 8]
    assert data.terminated.tolist() == [False, False, False, True, False, False, False]
    assert data.truncated.tolist() == [False, False, False, False, False, True, True]
    assert data.dropped == 3


def test_with_next_observations_every_row_stays():
    following = ROWS + 1
    following[[3, 4, 7, 9]] = [[99.0], [88.0], [77.0], [66.0]]
    data = ten(next_observations=following)
    assert data.offsets.tolist() == [0, 4, 5, 8, 10] and data.dropped == 0
    assert data.observations["observation"].ravel().tolist() == [0, 1, 2, 3, 99, 4, 88, 5, 6, 7, 77, 8, 9, 66]
    # s' of a transition is its own next observation: the last one is not dropped, and none leaks in from
    # another episode.
    assert (data.observations["observation"][data.rows + 1] == following).all()


def test_next_observations_that_belong_to_other_rows_are_refused():
    with pytest.raises(BadInput, match=r"row 0 \(episode 0\).*from_transitions"):
        ten(next_observations=ROWS + 2)


def test_terminated_and_truncated_stay_apart():
    data = ten()
    assert data.terminated.sum() == 1 and not (data.terminated & data.truncated).any()


def test_a_zero_is_not_taken_for_missing():
    data = ten(rewards=np.zeros(10), actions=np.zeros(10, dtype=int))
    assert (data.rewards == 0).all() and data.num_actions == 1


def test_an_episode_longer_than_1024_steps_starts_once():
    length = 3000
    data = Dataset.from_arrays(
        np.arange(2.0 * length)[:, None],
        np.zeros((2 * length, 1)),
        np.zeros(2 * length),
        np.isin(np.arange(2 * length), [length - 1, 2 * length - 1]),
    )
    assert data.num_episodes == 2
    assert data.start_observations()["observation"].ravel().tolist() == [0.0, length]


def test_episode_labels_end_episodes():
    data = Dataset.from_arrays(
        **plain(terminated=np.zeros(40), truncated=None),
        episode=np.repeat([7, 3, 9], [10, 10, 20]),
        ends="truncated",
    )
    assert data.lengths.tolist() == [9, 9, 19] and data.dropped == 3


def test_clusters_come_by_row_or_by_episode():
    by_episode = ten(cluster=["a", "b", "c", "c"])
    by_row = ten(cluster=np.repeat(["a", "b", "c", "c"], [4, 1, 3, 2]))
    assert by_episode.cluster.tolist() == by_row.cluster.tolist() == ["a", "c", "c"]
    assert by_episode.units.tolist() == [0, 1, 1]


def test_behaviours_come_by_row_or_by_episode():
    by_episode = ten(behaviour=["a", "b", "c", "c"])
    by_row = ten(behaviour=np.repeat(["a", "b", "c", "c"], [4, 1, 3, 2]))
    assert by_episode.behaviour.tolist() == by_row.behaviour.tolist() == ["a", "c", "c"]
    with pytest.raises(BadInput, match="behaviour changes inside episode 0"):
        ten(behaviour=np.arange(10))


def test_transitions_keep_their_pairs_and_refuse_sequences():
    data = Dataset.from_transitions(ROWS, np.arange(10) % 3, np.arange(10.0), ROWS * 2, TERMINATED, ROWS[:2])
    seen = data.observations["observation"]
    assert (seen[data.rows] == ROWS).all() and (seen[data.rows + 1] == ROWS * 2).all()
    assert data.num_actions == 3 and not data.ordered
    assert data.start_observations()["observation"].tolist() == [[0.0], [1.0]]
    with pytest.raises(BadInput, match="whole episodes"):
        data.require_order("MODEL")
    without = Dataset.from_transitions(ROWS, np.arange(10), np.arange(10.0), ROWS, TERMINATED)
    with pytest.raises(BadInput, match="start states are unknown"):
        without.start_observations()


def test_integer_columns_are_discrete_and_floats_are_not():
    assert Dataset.from_arrays(**plain(actions=np.arange(40)[:, None] % 4)).num_actions == 4
    assert Dataset.from_arrays(**plain(actions=np.arange(40.0) % 4), num_actions=6).actions.dtype == np.int64
    assert Dataset.from_arrays(**plain()).num_actions is None


def test_grey_frames_become_images_of_one_channel():
    frames = np.random.default_rng(0).integers(0, 256, (40, 8, 9), dtype=np.uint8)
    data = Dataset.from_arrays(**plain(observations=frames), stack=4)
    assert data.observe(data.rows)["observation"].shape == (len(data), 8, 9, 4)


def test_stacks_repeat_the_first_frame_of_their_own_episode():
    frames = np.random.default_rng(0).integers(0, 256, (40, 5, 4, 3), dtype=np.uint8)
    data = Dataset.from_arrays(**plain(observations={"pixels": frames}), stack=3)
    stored, stacked = data.observations["pixels"], data.observe(np.arange(len(data) + 4))["pixels"]
    for row in range(len(stored)):
        first = data.first_row[row]
        expected = np.concatenate([stored[max(row - back, first)] for back in (2, 1, 0)], axis=-1)
        assert (stacked[row] == expected).all()
