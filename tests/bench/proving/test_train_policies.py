"""Learning the policies of the ground: one lineage a run, complete or begun anew; rungs chosen by return."""

import json

import pytest

from bcrl_bench.policies.actor import NumpyActor
from bcrl_bench.proving import train_policies
from bcrl_bench.proving.gym_worlds import gym_copies
from bcrl_bench.proving.train_policies import Run, ladder, learn, ship


def test_rungs_are_chosen_by_what_they_earned():
    curve = [{"step": 10 * i, "return": value} for i, value in enumerate((5.0, 0.0, 30.0, 58.0, 100.0, 90.0))]
    assert ladder(curve) == {"good": 40, "medium": 30, "poor": 20}


def test_a_ladder_of_equals_still_has_three_rungs():
    curve = [{"step": step, "return": 1.0} for step in (1, 2, 3)]
    assert len(set(ladder(curve).values())) == 3


@pytest.fixture
def short(monkeypatch):
    runs = {"tiny": Run(gym_copies("Pendulum-v1"), steps=1_020, length=20, other=20)}
    monkeypatch.setattr(train_policies, "RUNS", runs)


def test_complete_runs_are_left_alone_and_others_begin_anew(short, tmp_path, monkeypatch):
    learn(tmp_path, [])
    last = tmp_path / "tiny" / "0" / "001020.safetensors"
    first = NumpyActor.load(last).to_bytes()
    (tmp_path / "tiny" / "0" / "curve.json").unlink()  # as if it had been cut short
    untouched = (tmp_path / "tiny" / "1" / "curve.json").stat().st_mtime_ns
    learn(tmp_path, [])
    assert NumpyActor.load(last).to_bytes() == first
    assert (tmp_path / "tiny" / "1" / "curve.json").stat().st_mtime_ns == untouched
    monkeypatch.setattr(train_policies, "WEIGHTS", tmp_path / "weights")
    ship(tmp_path, [])
    curve = json.loads((tmp_path / "tiny" / "0" / "curve.json").read_text())
    good = NumpyActor.load(tmp_path / "weights" / "tiny" / "good.safetensors").metadata
    assert float(good["return_mean"]) == max(point["return"] for point in curve)
    assert (tmp_path / "weights" / "tiny" / "other.safetensors").exists()
