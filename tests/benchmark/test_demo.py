"""The demo's two logs side by side, and the processes that they run in."""

import os
import time

import pytest

from bcrl.commands import demo
from bcrl.commands.processes import in_processes
from bcrl.comparison import Comparison
from bcrl.errors import BadInput


def tells(name, show):
    show({"stage": name, "threads": os.environ["OMP_NUM_THREADS"]})


def fails(name, show):
    if name == "bad":
        raise BadInput("no such log")
    time.sleep(60)


def dies(name, show):
    os._exit(9)


def test_every_job_is_heard_and_has_one_thread():
    heard = []
    in_processes(tells, [("one",), ("two",)], heard.append)
    assert sorted((news["stage"], news["threads"]) for news in heard) == [("one", "1"), ("two", "1")]


def test_a_failure_is_raised_here_and_stops_the_rest():
    began = time.monotonic()
    with pytest.raises(BadInput, match="no such log"):
        in_processes(fails, [("good",), ("bad",)], lambda news: None)
    assert time.monotonic() - began < 50


def test_a_process_that_dies_is_noticed():
    with pytest.raises(BadInput, match=r"ended with codes .*9"):
        in_processes(dies, [("one",)], lambda news: None)


def test_both_logs_are_answered_and_the_mixture_says_who_made_each_episode(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "ROLLOUTS", 4)
    asked = [
        "--out",
        str(tmp_path),
        "--episodes",
        "4",
        "--methods",
        "LSPE(RandomFeatures(dim=20))",
        "--quiet",
    ]
    assert demo.main(asked) == 0
    printed = capsys.readouterr().out
    for name in demo.LOGS:
        folder = tmp_path / name.replace(" ", "-")
        found = Comparison.load(folder / "results.json")
        assert (folder / "report.html").exists() and f"Log: {name}" in printed
        assert found.truth["new policy"]["value"] == pytest.approx(109, rel=0.1)
    from bcrl import load_dataset

    assert load_dataset(tmp_path / "mixture" / "log").behaviour.tolist() == ["025", "100"] * 2
    assert load_dataset(tmp_path / "weak-policy-only" / "log").behaviour is None
    with pytest.raises(BadInput, match="nonsense"):
        demo.main(["--out", str(tmp_path), "--methods", "nonsense"])
