"""Saved and opened again: the same bits, for any dataset; and a killed writer leaves nothing half done."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from data.made_datasets import assert_same, datasets, plain
from hypothesis import given, settings

from bcrl import BadInput, Dataset, load_dataset
from bcrl.data.dataset import LABELS
from bcrl.data.sources.npz import save_npz
from bcrl.data.storage.folder import content_hash, open_folder, save
from bcrl.data.storage.writer import Writer


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    return tmp_path_factory.mktemp("round")


@settings(max_examples=40, deadline=None)
@given(data=datasets())
def test_folder(room, data):
    place = room / f"folder-{time.monotonic_ns()}"
    save(data, place)
    assert_same(load_dataset(place, verify=True), data)


@settings(max_examples=60, deadline=None)
@given(data=datasets())
def test_npz(room, data):
    assert_same(load_dataset(save_npz(data, room / "data.npz")), data)


@settings(max_examples=15, deadline=None)
@given(data=datasets())
def test_writer_in_two_runs(room, data):
    place = room / f"writer-{time.monotonic_ns()}"
    half = data.num_episodes // 2
    options = {"stack": data.stack, "num_actions": data.num_actions, "about": {"seed": 0}}
    first = Writer(place, **options)
    for number in range(half):
        first.append(episode(data, number))
    del first  # as a kill would
    second = Writer(place, **options)
    assert second.episodes == half
    for number in range(half, data.num_episodes):
        second.append(episode(data, number))
    assert_same(second.close(), data)
    assert content_hash(open_folder(place)) == content_hash(data)


def episode(data: Dataset, number: int) -> dict:
    steps = slice(data.offsets[number], data.offsets[number + 1])
    rows = slice(steps.start + number, steps.stop + number + 1)
    made = {
        "observations": data.natural({k: np.asarray(v[rows]) for k, v in data.observations.items()}),
        "actions": data.actions[steps],
        "rewards": data.rewards[steps],
        "terminated": data.terminated[steps],
    }
    made |= {} if data.log_prob is None else {"log_prob": data.log_prob[steps]}
    labels = {name: getattr(data, name) for name in LABELS}
    return made | {name: label[number] for name, label in labels.items() if label is not None}


def test_unordered_transitions(tmp_path):
    rows = np.arange(12.0).reshape(6, 2)
    data = Dataset.from_transitions(
        rows, np.arange(6), np.arange(6.0), rows + 1, np.zeros(6), start_observations=rows[:3]
    )
    save(data, tmp_path / "data")
    assert_same(open_folder(tmp_path / "data"), data)
    assert_same(load_dataset(save_npz(data, tmp_path / "data.npz")), data)


def test_the_hash_sees_content_and_not_where_it_lies(tmp_path):
    data = Dataset.from_arrays(**plain())
    save(data, tmp_path / "a")
    assert content_hash(open_folder(tmp_path / "a")) == content_hash(data)
    changed = plain()
    changed["rewards"][17] = np.nextafter(changed["rewards"][17], 1e9)
    assert content_hash(Dataset.from_arrays(**changed)) != content_hash(data)
    assert content_hash(Dataset.from_arrays(**plain(), stack=2)) != content_hash(data)


def test_damage_is_seen(tmp_path):
    save(Dataset.from_arrays(**plain()), tmp_path / "data")
    path = tmp_path / "data" / "rewards.npy"
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 1
    path.write_bytes(bytes(raw))
    open_folder(tmp_path / "data")
    with pytest.raises(BadInput, match="does not match the hash"):
        open_folder(tmp_path / "data", verify=True)
    path.write_bytes(bytes(raw[:-8]))
    with pytest.raises(BadInput, match=r"rewards\.npy"):
        open_folder(tmp_path / "data")


def test_arrays_stay_on_disk(tmp_path):
    frames = np.zeros((40, 16, 16, 3), dtype=np.uint8)
    save(Dataset.from_arrays(**plain(observations={"pixels": frames})), tmp_path / "data")
    pixels = open_folder(tmp_path / "data").observations["pixels"]
    assert isinstance(pixels.base, np.memmap) and not pixels.flags.writeable


def test_an_unfinished_folder_says_so_and_other_settings_are_refused(tmp_path):
    writer = Writer(tmp_path / "data", about={"seed": 1})
    writer.append(
        {"observations": np.zeros((3, 1)), "actions": np.zeros((2, 1)), "rewards": [0, 1], "terminated": True}
    )
    with pytest.raises(BadInput, match="1 episodes are there"):
        load_dataset(tmp_path / "data")
    with pytest.raises(BadInput, match="being written by another process"):
        Writer(tmp_path / "data", about={"seed": 1})
    with pytest.raises(BadInput, match="does not fit the ones before"):
        writer.append(
            {
                "observations": np.zeros((3, 2)),
                "actions": np.zeros((2, 1)),
                "rewards": [0, 1],
                "terminated": True,
            }
        )
    del writer
    with pytest.raises(BadInput, match="was begun with"):
        Writer(tmp_path / "data", about={"seed": 2})


@pytest.mark.parametrize(("label", "before"), [({}, False), ({"cluster": "a"}, True)])
def test_a_folder_that_an_older_version_began_goes_on(tmp_path, label, before):
    """Progress kept `labelled` as one flag, for clusters, before there were labels of the behaviour."""
    one = {
        "observations": np.zeros((3, 1)),
        "actions": np.zeros((2, 1)),
        "rewards": [0, 1],
        "terminated": True,
    }
    writer = Writer(tmp_path / "data")
    writer.append(one | label)
    del writer
    progress = tmp_path / "data" / "progress.json"
    saved = json.loads(progress.read_text())
    del saved["behaviour"], saved["sha256"]
    progress.write_text(json.dumps(saved | {"labelled": before}))
    again = Writer(tmp_path / "data")
    again.append(one | label)
    data = again.close()
    assert data.num_episodes == 2 and data.behaviour is None
    assert (None if data.cluster is None else data.cluster.tolist()) == (["a", "a"] if label else None)


SAVING = """
import sys, numpy as np
from bcrl import Dataset
from bcrl.data.storage.folder import save
ends = np.arange(3000) % 100 == 99
data = Dataset.from_arrays(np.zeros((3000, 84, 84, 3), np.uint8), np.zeros((3000, 1)), np.zeros(3000), ends)
print("ready", flush=True)
save(data, sys.argv[1])
print("saved", flush=True)
"""
WRITING = """
import sys, numpy as np
from bcrl.data.storage.writer import Writer
writer = Writer(sys.argv[1], block=2)
print("ready", flush=True)
for number in range(writer.episodes, 10_000):
    generator = np.random.default_rng(number)
    length = int(generator.integers(1, 30))
    writer.append({"observations": generator.normal(size=(length + 1, 50)),
                   "actions": generator.normal(size=(length, 2)),
                   "rewards": generator.normal(size=length), "terminated": False})
"""


def killed_after(code: str, place: Path, seconds: float):
    """Run code in a process of its own, kill -9 some time after it says that it is ready."""
    process = subprocess.Popen([sys.executable, "-c", code, str(place)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().strip() == "ready"
    time.sleep(seconds)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    rest = process.stdout.read()
    process.stdout.close()
    return rest


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.05])
def test_a_killed_save_leaves_all_or_nothing(tmp_path, seconds):
    place = tmp_path / "data"
    killed_after(SAVING, place, seconds)
    if place.exists():
        assert len(open_folder(place, verify=True)) == 3000
    place = place if not place.exists() else tmp_path / "again"
    save(Dataset.from_arrays(**plain()), place)
    assert_same(open_folder(place, verify=True), Dataset.from_arrays(**plain()))


def test_a_killed_writer_goes_on_and_ends_in_the_same_bytes(tmp_path):
    place, counts = tmp_path / "data", []
    for _ in range(3):
        killed_after(WRITING, place, 0.15)
        counts.append(Writer(place, block=2).episodes)
    assert counts == sorted(counts) and counts[-1] > counts[0] >= 1
    writer = Writer(place, block=2)
    expected = []
    for number in range(writer.episodes + 3):
        generator = np.random.default_rng(number)
        length = int(generator.integers(1, 30))
        expected.append(
            {
                "observations": generator.normal(size=(length + 1, 50)),
                "actions": generator.normal(size=(length, 2)),
                "rewards": generator.normal(size=length),
                "terminated": False,
            }
        )
    assert_same(writer.finish(expected), Dataset.from_episodes(expected))
