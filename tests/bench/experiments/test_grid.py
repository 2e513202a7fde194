"""The grid runs end to end, goes on where it stopped, keeps failures apart, and gives the same numbers
again.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from bcrl.cli import main
from bcrl_bench.experiments.grid import run_local
from bcrl_bench.experiments.identity import cell_settings
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


def test_a_small_grid_end_to_end(tmp_path, capfd, tiny_profile):
    tiny_profile(["random", "mean", "broken"])
    assert run(tmp_path) == 1
    told = capfd.readouterr()
    assert "6 to run" in told.out and "4 cells run, 2 failed" in told.out
    assert "[6/6]" in told.err and "bandwidth" in told.err and "left" in told.err
    first = values(tmp_path)
    assert len(first) == 4

    record = records(tmp_path).finished()[Experiment("cartpole-swingup", "mixture", "100", "random", 0)]
    assert record["dataset"]["episodes"] == 8 and record["starts"]["count"] == 8
    mixed = World(load_profile(str(tmp_path / "tiny.toml")), tmp_path / "cache").dataset(
        "cartpole-swingup", "mixture"
    )
    assert mixed.behaviour.tolist() == ["025"] * 4 + ["100"] * 4
    assert len(record["starts"]["truth"]) == 4 and len(record["visited"]["rmse_at"]) == 25
    assert record["peak_memory_mb"] > 50 and record["timings"]["core"] > 0
    assert record["commit"] and record["versions"]["bcrl"]
    assert record["settings"]["options"]["chosen"] == ["representation.dim=50"]
    assert all(len(line) < 30_000 for line in records(tmp_path).path.read_text().splitlines())

    # Finished and failed cells are skipped; failed ones are run again when asked for; a lost line is made
    # again.
    assert run(tmp_path) == 0
    assert "4 done, 2 failed, 0 to run" in capfd.readouterr().out
    drawn = records(tmp_path).folder / "figures" / "errors.png"
    assert drawn.is_file()  # nothing was left to run
    drawn.unlink()
    lines = records(tmp_path).path.read_text().splitlines(keepends=True)
    records(tmp_path).path.write_text("".join(lines[:3]))
    assert json.loads(lines[3]) == record
    again = [*record["command"].split()[1:], "--results", str(tmp_path / "results")]
    assert main([*again, "--cache", str(tmp_path / "cache")]) == 0
    assert values(tmp_path) == first
    assert main(["benchmark", "figures", "tiny", "--results", str(tmp_path / "results")]) == 0
    assert drawn.is_file()
    earned = records(tmp_path).portraits()["cartpole-swingup"]["policies"]
    assert earned["100"]["return"] > 1.5 * earned["025"]["return"] > 0.0
    assert "cartpole-swingup" in (records(tmp_path).folder / "table.md").read_text()


def test_another_discount_makes_records_stale(tmp_path, capsys, tiny_profile):
    path = tiny_profile(["mean"])
    cell = Experiment("cartpole-swingup", "025", "100", "mean", 0)
    settings = cell_settings(load_profile(str(path)), cell)
    records(tmp_path).keep(cell, {"experiment": asdict(cell), "settings": settings})
    words = ["benchmark", "list", str(path), "--results", str(tmp_path / "results")]
    assert main(words) == 0
    assert "1 done" in capsys.readouterr().out
    path.write_text(path.read_text().replace("discount = 0.9", "discount = 0.8"))
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "0 done" in told and "stale    cartpole-swingup/025/100/mean-0" in told


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
def test_every_method_gives_the_same_value_again(tmp_path, tiny_profile):
    tiny_profile(EVERY_METHOD)
    assert run(tmp_path) == 0
    first = values(tmp_path)
    assert len(first) == 2 * len(EVERY_METHOD)
    records(tmp_path).path.unlink()
    assert run(tmp_path, "--workers", "2") == 0
    assert values(tmp_path) == first


@pytest.mark.slow
def test_a_killed_run_goes_on(tmp_path, tiny_profile):
    tiny_profile(["random", "mean"], seeds=3)
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
    kept = records(tmp_path)
    while len(kept.finished()) < 3 and process.poll() is None:
        time.sleep(0.05)
    (worker,) = psutil.Process(process.pid).children()[-1:]
    process.kill()
    process.wait()
    worker.wait(30)  # workers leave with the driver
    before = kept.path.read_text().splitlines()
    assert 3 <= len(before) < 12
    assert run(tmp_path) == 0
    assert len(values(tmp_path)) == 12
    after = kept.path.read_text().splitlines()
    assert len(after) == 12 and set(before) < set(after)
