"""Files as people have them: npz, D4RL HDF5, DrQ-v2 episodes, tables."""

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from data.made_datasets import assert_same, plain

from bcrl import BadInput, Dataset, load_dataset
from bcrl.data.sources.drq import single_frames


def test_npz_of_plain_arrays(tmp_path):
    arrays = plain()
    np.savez(tmp_path / "a.npz", **arrays)
    assert_same(load_dataset(tmp_path / "a.npz"), Dataset.from_arrays(**arrays))
    renamed = {"obs": arrays["observations"], "act": arrays["actions"], "rewards": arrays["rewards"]}
    np.savez(tmp_path / "b.npz", **renamed, terminals=arrays["terminated"], timeouts=arrays["truncated"])
    columns = {"observations": "obs", "actions": "act"}
    assert_same(load_dataset(tmp_path / "b.npz", columns=columns), Dataset.from_arrays(**arrays))


def test_npz_with_dict_observations_and_without_order(tmp_path):
    arrays = plain(truncated=np.ones(40, dtype=bool))
    state = arrays.pop("observations")
    np.savez(
        tmp_path / "a.npz",
        **arrays,
        **{
            "observations/state": state,
            "next_observations/state": state + 1,
            "start_observations/state": state[:4],
        },
    )
    data = load_dataset(tmp_path / "a.npz", ordered=False)
    assert not data.ordered and (data.observations["state"][data.rows + 1] == state + 1).all()
    assert data.given_starts["state"].shape == (4, 3)


def test_npz_done_is_not_guessed(tmp_path):
    arrays = plain()
    ends = arrays.pop("truncated")
    del arrays["terminated"]
    np.savez(tmp_path / "a.npz", **arrays, dones=ends)
    with pytest.raises(BadInput, match="does not say whether the world ended"):
        load_dataset(tmp_path / "a.npz")
    assert load_dataset(tmp_path / "a.npz", columns={"terminated": "dones"}).terminated.sum() == 4


@pytest.mark.parametrize("with_next", [False, True])
def test_d4rl(tmp_path, with_next):
    arrays = plain(log_prob=-np.arange(40.0))
    following = np.roll(arrays["observations"], -1, axis=0)
    with h5py.File(tmp_path / "d4rl.hdf5", "w") as file:
        for name, value in {"observations": 0, "actions": 0, "rewards": 0}.items():
            file[name] = arrays[name] + value
        file["terminals"], file["timeouts"] = arrays["terminated"], arrays["truncated"]
        file["infos/action_log_probs"] = arrays["log_prob"]
        file["metadata/algorithm"] = "SAC"
        if with_next:
            file["next_observations"] = following
    data = load_dataset(tmp_path / "d4rl.hdf5", columns={"log_prob": "infos/action_log_probs"})
    assert_same(data, Dataset.from_arrays(**arrays, next_observations=following if with_next else None))
    assert len(data) == (40 if with_next else 36)


def drq_episode(generator, length, discount, size=8):
    """As drqv2's ReplayBufferStorage writes it: stacks of three frames, channels first, a dummy first row."""
    frames = generator.integers(0, 256, (length + 1, 3, size, size), dtype=np.uint8)
    index = np.maximum(np.arange(length + 1)[:, None] - np.array([2, 1, 0]), 0)
    ends = np.ones((length + 1, 1), np.float32)
    ends[-1] = discount
    return frames, {
        "observation": frames[index].reshape(length + 1, 9, size, size),
        "action": generator.uniform(-1, 1, (length + 1, 2)).astype(np.float32),
        "reward": generator.normal(size=(length + 1, 1)).astype(np.float32),
        "discount": ends,
    }


def drq_folder(folder, count=12):
    generator, made = np.random.default_rng(0), []
    folder.mkdir()
    for number in range(count):
        frames, arrays = drq_episode(generator, 5 + number, 0.0 if number % 3 == 0 else 1.0)
        np.savez(folder / f"20210926T12{59 - number:02d}00_{number}_{5 + number}.npz", **arrays)
        made.append((frames, arrays))
    return made


def test_drq_episodes(tmp_path):
    made = drq_folder(tmp_path / "buffer")
    data = load_dataset(tmp_path / "buffer")
    assert data.num_episodes == 12 and data.stack == 3 and data.lengths.tolist() == list(range(5, 17))
    for number, (frames, arrays) in enumerate(made):
        steps = slice(data.offsets[number], data.offsets[number + 1])
        rows = np.arange(steps.start, steps.stop + 1) + number
        assert (data.observations["pixels"][rows] == frames.transpose(0, 2, 3, 1)).all()
        # Row 0 is a dummy: the first transition has action 1 and reward 1.
        assert (data.actions[steps] == arrays["action"][1:]).all()
        assert (data.rewards[steps] == arrays["reward"][1:, 0]).all()
        # A discount of 0 is the world's end, and not a missing value.
        assert data.terminated[steps].tolist() == [False] * (4 + number) + [number % 3 == 0]
        stacks = data.observe(rows)["pixels"]
        assert (stacks == arrays["observation"].transpose(0, 2, 3, 1)).all()


def test_drq_into_a_folder_is_the_same(tmp_path):
    drq_folder(tmp_path / "buffer")
    assert_same(load_dataset(tmp_path / "buffer", into=tmp_path / "out"), load_dataset(tmp_path / "buffer"))


def test_drq_stacks_in_another_order_are_refused(tmp_path):
    _, arrays = drq_episode(np.random.default_rng(0), 6, 1.0)
    with pytest.raises(BadInput, match=r"row 2 .*no stack of the 3 latest frames"):
        single_frames(tmp_path, arrays["observation"][:, ::-1], 3)


def table(count=24):
    generator = np.random.default_rng(0)
    return {
        "visit": [f"visit {i // 6}" for i in range(count)],
        "patient": [f"patient {i // 12}" for i in range(count)],
        "age": generator.normal(size=count),
        "pressure": generator.integers(60, 200, count),
        "dose": generator.integers(0, 3, count),
        "outcome": generator.normal(size=count),
        "died": [i in (5, 17) for i in range(count)],
    }


COLUMNS = {"observation": ["age", "pressure"], "action": "dose", "reward": "outcome", "episode": "visit"}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_tables(tmp_path, suffix):
    path, written = tmp_path / f"t.{suffix}", pa.table(table())
    pa.csv.write_csv(written, path) if suffix == "csv" else pa.parquet.write_table(written, path)
    data = load_dataset(
        path,
        columns=COLUMNS | {"terminated": "died", "cluster": "patient", "behaviour": "visit"},
        ends="truncated",
    )
    assert data.lengths.tolist() == [6, 5, 6, 5] and data.dropped == 2
    assert data.num_actions == 3 and data.units.tolist() == [0, 0, 1, 1]
    assert len(set(data.behaviour.tolist())) == 4 and len(set(data.cluster.tolist())) == 2
    assert data.terminated.sum() == 2
    rows = table()
    assert data.observations["observation"][:6].tolist() == [
        [a, float(p)] for a, p in zip(rows["age"][:6], rows["pressure"][:6], strict=True)
    ]


def test_tables_find_columns_by_name(tmp_path):
    count = 12
    columns = {f"observation_{i}": np.arange(count) + 100.0 * i for i in range(11)}
    columns |= {
        "action": np.linspace(-1, 1, count),
        "reward": np.arange(count),
        "truncated": np.arange(count) % 6 == 5,
    }
    pa.csv.write_csv(pa.table(columns), tmp_path / "t.csv")
    data = load_dataset(tmp_path / "t.csv")
    assert data.observations["observation"][0].tolist() == [100.0 * i for i in range(11)]
    assert data.actions.shape == (10, 1) and data.num_actions is None


def test_pickles_have_no_reader(tmp_path):
    for suffix in ("pkl", "pt", "joblib"):
        (tmp_path / f"a.{suffix}").write_bytes(b"")
        with pytest.raises(BadInput, match="can run code"):
            load_dataset(tmp_path / f"a.{suffix}")
