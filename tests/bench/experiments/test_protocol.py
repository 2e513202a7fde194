"""Profiles, metrics, verdict shares and figures: numbers in, numbers out, nothing is simulated."""

import json

import numpy as np
import pytest

from bcrl.comparison import picture
from bcrl.errors import BadInput
from bcrl.methods import parse_method
from bcrl_bench.experiments.figures import FIGURES, write_figures
from bcrl_bench.experiments.profile import load_profile, narrowed, profile_names
from bcrl_bench.experiments.protocol import (
    CAP,
    mean_error,
    rank,
    ranked_pairs,
    ranking,
    start_rmse,
    summary,
    visited_rmse,
)
from bcrl_bench.experiments.tables import table_page
from bcrl_bench.experiments.verdicts import Case, shares, verdict_page
from bcrl_bench.experiments.world import waiting_for


def test_states_is_the_grid_of_the_issue_in_its_order():
    cells = load_profile("states").experiments()
    assert len(cells) == len(set(cells)) == 180 + 216 + 144 + 60
    first = cells[:180]
    assert {(c.dataset, c.policy) for c in first} == {("025", "100")} and {c.seed for c in first} == set(
        range(5)
    )
    assert {c.policy for c in cells[180:396]} == {"075", "050", "010"}
    assert {c.dataset for c in cells[396:540]} == {"050", "mixture"}
    assert {c.method for c in cells[540:]} == {"bcrl-plain", "bcrl-no-design", "bcrl-design-only"}


@pytest.mark.parametrize("name", profile_names())
def test_every_method_of_every_profile_can_be_read(name):
    for variant in ({}, {"quick": True}, {"dry": True}):
        profile = load_profile(name, **variant)
        assert profile.experiments()
        for text in set(profile.methods.values()) - {"constant mean"}:
            parse_method(text)


def test_our_recipes_are_the_classes_own_defaults():
    methods = load_profile("states").methods
    assert methods["bcrl"] == "LSPE(BellmanComplete(), repeats=1)"
    assert parse_method(methods["dr"]).weighted


def test_unknown_names_are_refused_with_a_hint():
    with pytest.raises(BadInput, match="Did you mean 'states'"):
        load_profile("state")
    with pytest.raises(BadInput, match="Did you mean 'bcrl'"):
        narrowed(load_profile("states"), tasks=(), methods=("bcr",))


def test_a_task_without_shipped_policies_waits():
    profile = narrowed(load_profile("states"), tasks=("walker-run",), methods=("bcrl",))
    assert waiting_for(profile, profile.experiments()[0]) == ["walker-run/025", "walker-run/100"]
    profile = narrowed(profile, tasks=("cheetah-run",), methods=())
    assert waiting_for(profile, profile.experiments()[0]) == []


def test_errors_are_shares_of_the_truth(make_record):
    record = make_record(value=80.0, truth=-100.0)
    assert (mean_error(record), start_rmse(record), visited_rmse(record)) == (1.8, 0.2, 0.3)
    lost = make_record(value=None)
    assert mean_error(lost) == start_rmse(lost) == visited_rmse(lost) == CAP
    assert start_rmse(make_record(starts=None)) is None


def test_a_summary_averages_tasks_first_and_spans_seeds(make_record):
    values = {("x", 0): 90.0, ("y", 0): 70.0, ("x", 1): 100.0, ("y", 1): 100.0, ("x", 2): 0.0}
    records = [make_record(task=task, seed=seed, value=value) for (task, seed), value in values.items()]
    found = summary(records, mean_error, {"x", "y"})
    assert found.mean == pytest.approx(0.1)  # seed 0: 0.2, seed 1: 0; seed 2 lacks a task and is left out
    assert (found.seeds, found.tasks) == (2, 2)
    assert found.high - found.mean == pytest.approx(12.706 * 0.1, rel=1e-3)
    assert summary([make_record(starts=None)], start_rmse, {"t"}) is None
    assert summary([r for r in records if r["experiment"]["task"] == "x"], mean_error, {"x", "y"}) is None


def test_a_policy_that_earns_nothing_has_no_share_to_divide_by(make_record):
    assert mean_error(make_record(value=0.0, truth=0.0)) == 0.0
    assert mean_error(make_record(value=0.1, truth=0.0)) == CAP


def test_ranking_and_regret(make_record):
    assert rank([1.0, 2.0, 3.0], [10.0, 20.0, 40.0]) == (1.0, 0.0)
    assert rank([3.0, 2.0, 1.0], [10.0, 20.0, 40.0]) == (-1.0, 0.75)
    assert rank([3.0, None, 1.0], [10.0, 20.0, 30.0])[0] == 0.0
    assert rank([3.0, 3.0, 3.0], [10.0, 20.0, 30.0]) == (0.0, pytest.approx(1 / 3))
    levels = {"100": 40.0, "050": 20.0, "010": 10.0}
    records = [make_record(policy=p, truth=v, value=2 * v) for p, v in levels.items()]
    pairs = ranked_pairs(records)
    found = ranking(records, pairs)
    assert (found.correlation.mean, found.regret.mean) == (1.0, 0.0)
    assert ranking(records[:2], pairs) is None and ranking(records[:2], ranked_pairs(records[:2])) is None
    assert (
        ranking(records, pairs | {("t", "075")}) is None
    )  # who lacks a policy is not compared with who has it


def test_verdict_shares_count_what_they_say(tmp_path, make_record):
    cases = [
        Case("m", 0.05, "trust", True),
        Case("m", 0.20, "trust", False),
        Case("m", 0.50, "distrust", True),
        Case("m", 10.0, "caution", False),
    ]
    found = shares(cases)
    assert (found.trusted_right, found.caught, found.covered_trusted) == ((1, 2), (1, 2), (1, 2))
    worlds = tmp_path / "worlds.json"
    row = {"world": "lqr", "error": 0.01, "verdict": "trust"}
    worlds.write_text(json.dumps({"rows": [row | {"kappa": 4.9}, row | {"kappa": 5.1}]}))
    page = verdict_page([make_record(), make_record(method="mean")], worlds)
    assert "| **all** | 3 | 2 of 3 (66.7%) | 0 of 0 | 1 of 1 (100.0%) |" in page
    assert "| **cells** | 1 | 0 of 1 (0.0%) |" in page and "| **worlds** | 2 | 2 of 2 (100.0%) |" in page
    assert "mean" not in page.split("| **all**")[1]


def test_figures_come_from_records_alone_and_say_what_is_missing(tmp_path, make_record):
    records = [
        make_record(task=task, policy=policy, method=method, seed=seed, value=truth * 0.9, truth=truth)
        for task in ("x", "y")
        for policy, truth in {"100": 100.0, "075": 75.0, "050": 50.0, "010": 10.0}.items()
        for method in ("bcrl", "spr", "bcrl-plain", "bcrl-no-design")
        for seed in (0, 1)
    ]
    records += [make_record(task=task, method="fqe", value=None) for task in ("x", "y")]
    records += [make_record(task="x", method="random")]  # lacks a task
    again = make_record(task="x", seed=2)
    again["curves"]["train/first_try/value"] = [1.0, 2.0]
    records += [again, make_record(task="y", seed=2)]
    frame = picture(np.zeros((8, 8, 3), np.uint8))
    policies = {"100": {"actor": "100", "return": 700.0, "sd": 9.0, "episodes": 50}}
    portraits = {"x": {"frame": frame, "policies": policies}}
    made = write_figures(records, portraits, tmp_path)
    missing = {"lspe-curves-mixture", "errors-mixture", "errors-050", "ablation-completeness"}
    assert {name for name, there in made.items() if not there} == missing
    assert set(made) == {*FIGURES, "frames"}
    for name in set(made) - missing:
        assert (tmp_path / f"{name}.png").stat().st_size > 1000
        assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    before = (tmp_path / "errors.pdf").read_bytes()
    write_figures(records, portraits, tmp_path)
    assert (tmp_path / "errors.pdf").read_bytes() == before
    page = table_page("made", records, portraits)
    assert "| spr | 0.20 (0.20 to 0.20) | 0.30 (0.30 to 0.30) | 0.10 (0.10 to 0.10) | 4 / 0 / 0 |" in page
    assert "| x | 100 | 100 | 700.0 |" in page and "diverged" in page
    assert "| random | no seed with all 2 tasks |" in page
