"""Files of any size into bcrl's folder: what the reader in memory gives, to the bit, block by block."""

import hashlib
import subprocess
import sys

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from bcrl import BadInput, load_dataset
from bcrl.cli import main
from bcrl.data.convert import arrays, streams, whole
from bcrl.data.convert.convert import convert
from bcrl.data.storage import blocks
from bcrl.data.storage.contents import content_hash, named_arrays

pytestmark = pytest.mark.filterwarnings("ignore::bcrl.errors.Guess")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of some hundred rows, so that a small log has many; marks of progress after each few."""
    for module in (streams, whole, arrays):
        monkeypatch.setattr(module, "BATCH", 100)
    monkeypatch.setattr(streams, "_CSV_BLOCK", 5000)
    monkeypatch.setattr(blocks, "_MARK_EVERY", 20_000)


def columns(rows=3000, seed=0):
    """A table of whole episodes, each marked at its end."""
    generator = np.random.default_rng(seed)
    episode = np.sort(generator.integers(0, rows // 12, rows))
    return {
        "observation_x": generator.normal(size=rows),
        "observation_y": generator.integers(0, 5, rows),
        "action": generator.integers(0, 3, rows),
        "reward": generator.normal(size=rows),
        "episode": episode,
        "step": np.arange(rows),
        "terminated": np.append(episode[1:] != episode[:-1], True),
    }


def words(table):
    """The same with words, dates, clusters by name, and gaps that begin late."""
    count = len(table["reward"])
    wards = np.array(["north", "south", "east"])[table["observation_y"] % 3]
    gap = np.arange(count) % 7 == 3
    return table | {
        "observation_ward": pa.array(wards),
        "observation_seen": pa.array(np.datetime64("2020-01-05") + np.arange(count)[::-1] % 400),
        "observation_x": pa.array(table["observation_x"], mask=gap & (np.arange(count) > 1500)),
        "cluster": pa.array([f"patient {number}" for number in table["episode"]]),
        "action": pa.array(np.array(["stay", "go", "ask"])[table["action"]]),
    }


def written(table, path):
    if path.suffix == ".csv":
        pa.csv.write_csv(pa.table(table), path)
    elif path.suffix == ".parquet":
        pa.parquet.write_table(pa.table(table), path)
    else:  # partitioned
        by = pa.table(table | {"site": np.asarray(table["episode"]) // 50})
        pa.parquet.write_to_dataset(by, path, partition_cols=["site"])
    return path


def assert_same(one, other):
    first, second = named_arrays(one), named_arrays(other)
    assert first.keys() == second.keys() and one.num_actions == other.num_actions
    for name, array in first.items():
        assert array.dtype == second[name].dtype
        if array.dtype.kind == "f":
            np.testing.assert_allclose(array, second[name], rtol=1e-12, atol=1e-12)
        else:
            np.testing.assert_array_equal(array, second[name])


def same(path, folder, **options):
    converted, read = convert(path, folder, **options), load_dataset(path, **options)
    if options.get("missing") is None:
        assert content_hash(converted) == content_hash(read)
    else:  # a mean over blocks rounds in another order
        assert_same(converted, read)
    assert (converted.dropped, converted.dropped_reward) == (read.dropped, pytest.approx(read.dropped_reward))
    assert content_hash(load_dataset(folder, verify=True)) == content_hash(converted)
    return converted


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a"])
def test_tables(tmp_path, name):
    assert len(same(written(columns(), tmp_path / name), tmp_path / "out")) == 3000


@pytest.mark.parametrize("missing", ["forward", "mean"])
@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_words_dates_and_gaps_are_known_of_all_rows_first(tmp_path, name, missing):
    dataset = same(written(words(columns()), tmp_path / name), tmp_path / "out", missing=missing)
    assert dataset.observations["observation"].shape[1] == 1 + 1 + 1 + 1 + 3 and dataset.num_actions == 3


@pytest.mark.parametrize("how", ["cohort", "columns"])
@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_groups_are_kept(tmp_path, name, how):
    table = columns()
    path = written(table | {"ward": np.array(["north", "south"])[table["episode"] % 2]}, tmp_path / name)
    options = {"cohort": "ward"} if how == "cohort" else {"columns": {"cohort": "ward"}}
    converted = same(path, tmp_path / "out", **options)
    kept = load_dataset(tmp_path / "out").cohort
    assert kept.tolist() == load_dataset(path, **options).cohort.tolist()
    assert set(kept.tolist()) == {"north", "south"} and len(kept) == converted.num_episodes


def test_a_category_keeps_its_own_order(tmp_path):
    table = words(columns())
    table["observation_ward"] = table["observation_ward"].dictionary_encode()
    del table["observation_x"]
    same(written(table, tmp_path / "a.parquet"), tmp_path / "out")


def test_episodes_that_are_interleaved_are_put_in_order_on_disk(tmp_path, monkeypatch):
    table = pa.table(columns())
    order = np.random.default_rng(1).permutation(3000)
    path = written(table.take(pa.array(order)), tmp_path / "a.parquet")
    monkeypatch.setattr(whole, "_MOST_FILES", 7)
    dataset = same(path, tmp_path / "out")
    assert (np.diff(dataset.offsets) > 0).all() and not (tmp_path / "out" / ".aside").exists()


def test_types_that_the_first_rows_do_not_show(tmp_path):
    table = columns()
    table["reward"] = np.where(np.arange(3000) < 2000, 1, 0.5)
    path = written(table, tmp_path / "a.csv")
    text = path.read_text().replace(",1.0,", ",1,").replace("1.0\n", "1\n")
    path.write_text(text)
    same(path, tmp_path / "out")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("labelled", [False, True])
def test_npz_and_hdf5(tmp_path, packed, labelled):
    table = columns()
    given = {"observations": np.stack([table["observation_x"], table["observation_y"]], axis=1)}
    given |= {"actions": table["action"], "rewards": table["reward"]}
    last = table["terminated"]
    given |= {
        "terminated": last & (table["episode"] % 2 == 0),
        "truncated": last & (table["episode"] % 2 == 1),
    }
    if labelled:
        given |= {"episode": table["episode"], "cluster": np.unique(table["episode"]) // 3}
        given["cohort"] = np.unique(table["episode"]) % 2
    (np.savez_compressed if packed else np.savez)(tmp_path / "a.npz", **given)
    same(tmp_path / "a.npz", tmp_path / "one")
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for name, array in given.items():
            file.create_dataset(
                name, data=array, chunks=(64, *array.shape[1:]), compression="gzip" if packed else None
            )
    same(tmp_path / "a.hdf5", tmp_path / "two")


@pytest.mark.parametrize("ends", ["terminated", "truncated", "drop"])
def test_ends_that_nobody_marked(tmp_path, ends):
    table = columns()
    del table["terminated"]
    same(written(table, tmp_path / "a.parquet"), tmp_path / "out", ends=ends)


def spoiled(name, change):
    return pytest.param(change, id=name)


def _set(column, row, value):
    def change(table):
        table[column] = table[column].astype(type(value)) if isinstance(value, float) else table[column]
        table[column][row] = value

    return change


def _drop(name):
    return lambda table: table.pop(name)


def _again(table):
    table["episode"][2500] = table["episode"][3]
    del table["step"]


def _twice(table):
    table["step"][1] = table["step"][0] = 0
    table["episode"][1] = table["episode"][0]


@pytest.mark.parametrize(
    "change",
    [
        spoiled("nan in a reward", _set("reward", 2222, float("nan"))),
        spoiled("infinity", _set("observation_x", 2223, float("inf"))),
        spoiled("gap", _set("observation_x", 1700, float("nan"))),
        spoiled(
            "flag that is 2",
            lambda t: t.update(terminated=np.where(np.arange(3000) == 2100, 2, t["terminated"])),
        ),
        spoiled("an end inside", lambda t: t.update(terminated=t["terminated"] | (np.arange(3000) == 2101))),
        spoiled("an episode again", _again),
        spoiled("the same step twice", _twice),
        spoiled("no reward", _drop("reward")),
        spoiled("action below zero", _set("action", 2400, -1)),
        spoiled("words for rewards", lambda t: t.update(reward=["bad"] * 3000)),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_reader_in_memory(tmp_path, change):
    table = columns()
    change(table)
    path = written(table, tmp_path / "a.parquet")
    with pytest.raises(BadInput) as expected:
        load_dataset(path)
    with pytest.raises(BadInput) as got:
        convert(path, tmp_path / "out")
    assert str(got.value) == str(expected.value)
    assert not (tmp_path / "out").exists()


KILLED = """
import os, signal, sys
sys.path[:0] = {path!r}
import data.test_convert as own
from bcrl.data.convert.convert import convert
for module in (own.streams, own.whole, own.arrays):
    module.BATCH = 100
own.blocks._MARK_EVERY = 20_000
told = []
def show(news):
    told.append(news)
    if len(told) == {after}:
        os.kill(os.getpid(), signal.SIGKILL)
convert({source!r}, {folder!r}, missing="mean", show=show)
"""


def contents(folder):
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_killed_conversion_goes_on_and_gives_the_same_bytes(tmp_path, shuffled):
    table = pa.table(words(columns()))
    if shuffled:
        table = table.take(pa.array(np.random.default_rng(1).permutation(3000)))
    path = written(table, tmp_path / "a.parquet")
    convert(path, tmp_path / "whole", missing="mean")
    script = KILLED.format(path=sys.path, after=13, source=str(path), folder=str(tmp_path / "out"))
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    begun = blocks.BlockWriter(
        tmp_path / "out", blocks.read_json(tmp_path / "out/progress.json", "")["made_of"]
    )
    assert 0 < begun.position < 3000
    del begun
    with pytest.raises(BadInput, match="was begun with"):
        convert(path, tmp_path / "out", missing="forward")
    convert(path, tmp_path / "out", missing="mean")
    mine, whole_one = contents(tmp_path / "out"), contents(tmp_path / "whole")
    assert mine == whole_one and "dataset.json" in mine


def test_the_command(tmp_path, capsys):
    path = written(columns(), tmp_path / "a.csv")
    assert main(["convert", str(path), str(tmp_path / "out"), "--quiet"]) == 0
    assert "3000 transitions" in capsys.readouterr().out
    assert main(["convert", str(path), str(tmp_path / "out")]) == 2
    assert "already holds a finished dataset" in capsys.readouterr().err
    assert main(["convert", str(tmp_path / "out"), str(tmp_path / "three")]) == 2
    assert "nothing to convert" in capsys.readouterr().err


def test_an_empty_table_is_refused(tmp_path):
    for path in (tmp_path / "a.parquet", tmp_path / "a.csv"):
        written({name: column[:0] for name, column in columns().items()}, path)
        with pytest.raises(BadInput, match=r"has no rows|cannot be read"):
            convert(path, tmp_path / "out")
