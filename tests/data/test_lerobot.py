"""LeRobot datasets, as LeRobot's own library 0.4.4 wrote one (make_lerobot.py says how)."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

import bcrl
from bcrl import BadInput, load_dataset
from bcrl.data.convert.convert import convert
from bcrl.data.storage.contents import content_hash
from bcrl.doctor import examine

SIX = Path(__file__).parent / "lerobot"
STATE = {"observation": "observation.state"}
LENGTHS, FAILED = 8 + np.arange(6), np.array([1, 4])


@pytest.fixture
def copied(tmp_path):
    return Path(shutil.copytree(SIX, tmp_path / "six"))


def changed(folder, change):
    path = folder / "meta" / "info.json"
    info = json.loads(path.read_text())
    change(info)
    path.write_text(json.dumps(info))


def test_rewards_as_they_were_recorded():
    data = load_dataset(SIX, columns=STATE, ends="terminated")
    assert data.lengths.tolist() == LENGTHS.tolist() and data.single
    step = np.concatenate([np.arange(n) for n in LENGTHS])
    episode = np.repeat(np.arange(6), LENGTHS)
    state = np.stack([episode + 0.1 * step, -step, step], axis=1)
    np.testing.assert_allclose(data.observations["observation"][data.rows], state, rtol=1e-6)
    np.testing.assert_allclose(data.actions, np.stack([np.full(len(step), 0.1), step], axis=1), rtol=1e-6)
    good = (step == LENGTHS[episode] - 1) & ~np.isin(episode, FAILED)
    np.testing.assert_array_equal(data.rewards, 0.5 + good)
    with pytest.raises(BadInput, match="did the episodes end here"):
        load_dataset(SIX, columns=STATE)


def test_a_flag_of_success_is_one_reward_at_the_end():
    data = load_dataset(SIX, columns=STATE | {"success": "next.success"}, ends="terminated")
    last = data.offsets[1:] - 1
    assert data.rewards.sum() == 4 and data.terminated[last].all()
    assert np.flatnonzero(data.rewards[last] == 0.0).tolist() == FAILED.tolist()
    cut = load_dataset(SIX, columns=STATE | {"success": "next.success"})
    assert cut.dropped == 2 and cut.rewards.sum() == 4  # a failed attempt's last frame leads nowhere known


def test_a_log_of_successes_alone_is_distrusted():
    data = load_dataset(SIX, columns=STATE | {"success": "next.success"}, ends="terminated")
    named = "successes only"

    def bearings(log):
        return [f.bears.name for f in examine(log) if f.bears is not None and f.bears.name == named]

    assert not bearings(data)
    good = data.select(np.setdiff1d(np.arange(6), FAILED))
    assert bearings(good) == [named]
    estimate = bcrl.evaluate(good, lambda seen: seen[:, :2], discount=0.9, method="random", quiet=True)
    assert estimate.verdict == "distrust"
    assert any("success" in check.meaning for check in estimate.checks)


def test_the_folder_that_convert_writes_is_the_same(tmp_path):
    options = {"columns": STATE | {"cluster": "task_index"}, "ends": "terminated"}
    read = load_dataset(SIX, **options)
    assert read.num_units == 2
    assert content_hash(convert(SIX, tmp_path / "log", **options)) == content_hash(read)
    assert content_hash(load_dataset(tmp_path / "log", verify=True)) == content_hash(read)


def test_cameras_are_decoded_where_each_episode_lies(tmp_path):
    data = load_dataset(SIX, ends="terminated")
    frames = data.observations["images.front"]
    assert frames.shape == (69, 64, 64, 3) and frames.dtype == np.uint8
    step = np.concatenate([np.arange(n) for n in LENGTHS])
    grey = 10 * np.repeat(np.arange(6), LENGTHS) + 15 * step
    shown = frames[data.rows].mean(axis=(1, 2, 3))
    assert np.abs(shown - grey).max() < 4  # the video is lossy
    converted = convert(SIX, tmp_path / "log", ends="terminated")
    assert content_hash(converted) == content_hash(data)


def test_without_the_decoder_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(BadInput, match=r"pip install 'bcrl\[lerobot\]'"):
        load_dataset(SIX, ends="terminated")


def older(info):
    info["codebase_version"] = "v2.1"


def without_rewards(info):
    for name in ("next.reward", "next.success"):
        info["features"].pop(name)


def leading_out(info):
    info["data_path"] = "../../data-{chunk_index}-{file_index}"


def no_pattern(info):
    info["data_path"] = "data/{nothing}"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (older, "expected v3.0"),
        (without_rewards, "nothing says what a policy would earn"),
        (leading_out, "No file at"),
        (no_pattern, "no pattern of files"),
        (lambda info: info.update(fps=0), "expected frames a second"),
        (lambda info: info.update(features=[]), "lists no features"),
        (lambda info: info["features"]["action"].pop("shape"), "shape"),
        (lambda info: info["features"]["observation.state"].update(dtype="image"), "numbers and videos"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(copied, change, words):
    changed(copied, change)
    with pytest.raises(BadInput, match=words):
        load_dataset(copied, columns=STATE, ends="terminated")


def test_files_that_do_not_hold_what_the_offsets_say(copied):
    path = copied / "data" / "chunk-000" / "file-001.parquet"
    table = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(table.slice(3), path)
    with pytest.raises(BadInput, match="where meta/episodes says"):
        load_dataset(copied, columns=STATE, ends="terminated")


def test_unknown_features_are_named():
    with pytest.raises(BadInput, match=r"has no feature 'next\.rewards'"):
        load_dataset(SIX, columns=STATE | {"reward": "next.rewards"})
    with pytest.raises(BadInput, match="columns has the key 'rewards'"):
        load_dataset(SIX, columns={"rewards": "next.reward"})
