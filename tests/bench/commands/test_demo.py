"""The demo's two logs side by side."""

import pytest

from bcrl import load_dataset
from bcrl.comparison import Comparison
from bcrl.errors import BadInput
from bcrl_bench import guarding
from bcrl_bench.commands import demo


def test_both_logs_are_answered_and_the_mixture_says_who_made_each_episode(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "ROLLOUTS", 4)
    # One after the other and here: a process of its own would not see the small numbers.
    monkeypatch.setattr(demo, "in_processes", lambda job, calls, show: [job(*call, show) for call in calls])
    monkeypatch.setattr(guarding, "_ROLLOUTS", 2)
    monkeypatch.setattr(guarding, "_STEPS", 50)
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
    steps = {step.name: step for step in found.next_steps["new policy"]}  # of the weak policy's log
    assert {"bounds", "followed", "guarded", "trial"} <= set(steps)
    assert steps["guarded"].numbers["truth"] > 0.0 and "Simulated, it earns" in steps["guarded"].text
    assert steps["guarded"].text in (folder / "report.html").read_text()
    assert (folder / "guarded.html").exists()
    assert load_dataset(tmp_path / "mixture" / "log").behaviour.tolist() == ["025", "100"] * 2
    assert load_dataset(tmp_path / "weak-policy-only" / "log").behaviour is None
    with pytest.raises(BadInput, match="--episodes is 0; expected 1 or more"):
        demo.main([*asked[:2], "--episodes", "0"])
    with pytest.raises(BadInput, match="nonsense"):
        demo.main(["--out", str(tmp_path), "--methods", "nonsense"])
