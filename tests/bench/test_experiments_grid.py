"""The grid runs end to end, goes on where it stopped, keeps failures apart, and gives the same numbers again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from grid_world import tiny_profile

from bcrl.cli import main
from bcrl.networks import Pixels
from bcrl.representations.curl import CURL
from bcrl_bench.experiments.grid import alike, run_local
from bcrl_bench.experiments.profile import Experiment, load_profile
from bcrl_bench.experiments.records import Records
from bcrl_bench.experiments.world import World

EVERY_METHOD = ["bcrl", "curl", "spr", "random", "fqe", "dr", "dice", "model", "mean"]


def run(folder: Path, *more: str) -> int:
    words = ["benchmark", "run", str(folder / "tiny.toml"), "--results", str(folder / "results")]
    return main([*words, "--cache", str(folder / "cache"), *more])


def records(folder: Path) -> Records:
    return Records(folder / "results" / "tiny")


def values(folder: Path) -> dict[str, float]:
    found = records(folder).all()
    return {Experiment(**r["experiment"]).name: r["value"] for r in found}


def test_a_small_grid_end_to_end(tmp_path, capfd):
    tiny_profile(tmp_path, ["random", "mean", "broken"])
    assert run(tmp_path) == 1
    told = capfd.readouterr()
    assert "6 to run" in told.out and "4 cells run, 2 failed" in told.out
    assert "[6/6]" in told.err and "bandwidth" in told.err and "left" in told.err
    first = values(tmp_path)
    assert len(first) == 4

    record = records(tmp_path).read(Experiment("cartpole-swingup", "mixture", "100", "random", 0))
    assert record["dataset"]["episodes"] == 8 and record["starts"]["count"] == 8
    mixed = World(load_profile(str(tmp_path / "tiny.toml")), tmp_path / "cache").dataset(
        "cartpole-swingup", "mixture"
    )
    assert mixed.behaviour.tolist() == ["025"] * 4 + ["100"] * 4
    assert len(record["starts"]["truth"]) == 4 and len(record["visited"]["rmse_at"]) == 25
    assert record["peak_memory_mb"] > 50 and record["timings"]["core"] > 0
    assert (
        record["commit"]
        and record["versions"]["bcrl"]
        and "RandomFeatures(dim=50" in record["settings"]["recipe"]
    )
    assert all(path.stat().st_size < 30_000 for path in records(tmp_path).folder.rglob("*.json"))

    # Finished and failed cells are skipped; failed ones are run again when asked for; a lost file is made again.
    assert run(tmp_path) == 0
    assert "4 done, 2 failed, 0 to run" in capfd.readouterr().out
    records(tmp_path).path(Experiment(**record["experiment"])).unlink()
    again = [*record["command"].split()[1:], "--results", str(tmp_path / "results")]
    assert main([*again, "--cache", str(tmp_path / "cache")]) == 0
    assert values(tmp_path) == first
    assert main(["benchmark", "figures", "tiny", "--results", str(tmp_path / "results")]) == 0
    assert (records(tmp_path).folder / "figures" / "errors.png").is_file()
    assert "cartpole-swingup" in (records(tmp_path).folder / "table.md").read_text()


def test_another_recipe_makes_records_stale(tmp_path, capsys):
    path = Path(tiny_profile(tmp_path, ["mean"]))
    cell = Experiment("cartpole-swingup", "025", "100", "mean", 0)
    records(tmp_path).keep(
        cell, {"settings": load_profile(str(path)).settings(cell) | {"recipe": "ConstantMean()"}}
    )
    words = ["benchmark", "list", str(path), "--results", str(tmp_path / "results")]
    assert main(words) == 0
    assert "1 done" in capsys.readouterr().out
    path.write_text(path.read_text().replace("discount = 0.9", "discount = 0.8"))
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "0 done" in told and "stale    cartpole-swingup/025/100/mean-0" in told


def test_a_pixel_encoders_settings_count_only_where_frames_are_seen():
    made, now = CURL(pixels=Pixels(conv_layers=5)), CURL()
    for pixels, same in ((None, True), (64, False)):
        asked = {"pixels": pixels, "discount": 0.99}
        assert alike(asked | {"recipe": repr(made)}, asked | {"recipe": repr(now)}) is same
        assert alike(asked | {"recipe": repr(now)}, asked | {"recipe": repr(now)})
        assert not alike(asked | {"recipe": repr(CURL(lr=0.1))}, asked | {"recipe": repr(now)})
        assert not alike(asked | {"recipe": "", "discount": 0.9}, asked | {"recipe": ""})


def die_at_three(experiment: Experiment) -> dict:
    if experiment.seed in (2, 4):
        time.sleep(2.0)  # still running when its neighbour dies
    if experiment.seed == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if experiment.seed == 5:
        raise ValueError("five")
    return {"seed": experiment.seed}


@pytest.mark.slow
def test_a_dying_worker_takes_only_its_own_cell_with_it():
    todo = [Experiment("t", "d", "p", "m", seed) for seed in range(8)]
    found = list(run_local(die_at_three, todo, workers=2))
    assert sorted(cell.seed for cell, _, _ in found) == list(range(8))
    failed = {cell.seed: error for cell, record, error in found if record is None}
    assert set(failed) == {3, 5}
    assert "BrokenProcessPool" in failed[3] and "ValueError: five" in failed[5]
    assert all(record["seed"] == cell.seed for cell, record, _ in found if record is not None)


@pytest.mark.slow
def test_every_method_gives_the_same_value_again(tmp_path):
    tiny_profile(tmp_path, EVERY_METHOD)
    assert run(tmp_path) == 0
    first = values(tmp_path)
    assert len(first) == 2 * len(EVERY_METHOD)
    for path in records(tmp_path).folder.glob("*/*/*/*.json"):
        path.unlink()
    assert run(tmp_path, "--workers", "2") == 0
    assert values(tmp_path) == first


@pytest.mark.slow
def test_a_killed_run_goes_on(tmp_path):
    tiny_profile(tmp_path, ["random", "mean"], seeds=3)
    words = [
        sys.executable,
        "-m",
        "bcrl.cli",
        "benchmark",
        "run",
        "tiny.toml",
        "--results",
        "results",
        "--cache",
        "cache",
    ]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    folder = records(tmp_path).folder
    while len(list(folder.glob("*/*/*/*.json"))) < 3 and process.poll() is None:
        time.sleep(0.05)
    (worker,) = psutil.Process(process.pid).children()[-1:]
    process.kill()
    process.wait()
    worker.wait(30)  # workers leave with the driver
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*/*/*/*.json")}
    assert 3 <= len(before) < 12
    for path in before:
        json.loads(path.read_text())
    assert run(tmp_path) == 0
    assert len(values(tmp_path)) == 12
    assert {path: path.stat().st_mtime_ns for path in before} == before
