"""Multipliers of the budget: quantiles with families weighted alike, and no family judged by itself."""

import json
import math

import numpy as np
import pytest

from bcrl.cli import main
from bcrl_bench.proving.calibrate import (
    ENOUGH,
    Answer,
    after,
    family_interval,
    judged,
    leave_one_family_out,
    multiplier,
    page,
    shipped,
    study,
    verdict_of,
    weighted_quantile,
)


def answer(family, error, total=1.0, *, method="m", mark="covered", **changes):
    """True value 10, off by `error`, with a budget of `total`."""
    fields = {
        "family": family,
        "method": method,
        "mark": mark,
        "case": f"{family}/log/target",
        "known": True,
        "value": 10.0 + error,
        "truth": 10.0,
        "size": 10.0 + error,
        "true_size": 10.0,
        "entries": {"sampling": total},
        "sampling": 0.1,
        "logged": 8.0,
        "comparable": True,
        "before": "trust",
        "bound": "trust",
    }
    return Answer(**(fields | changes))


def test_a_quantile_counts_weights():
    assert weighted_quantile(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0]), 0.75) == 2.0
    assert weighted_quantile(np.zeros(0), np.zeros(0), 0.95) == math.inf


def test_a_large_family_does_not_drown_a_small_one():
    answers = [answer("large", 0.1) for _ in range(1000)] + [answer("small", 5.0) for _ in range(2)]
    assert multiplier(answers) == 5.0
    assert multiplier(answers[:1000]) == pytest.approx(0.1)


def test_no_family_is_judged_by_itself():
    answers = [answer("wild", 9.0) for _ in range(ENOUGH)] + [answer("tame", 0.5) for _ in range(ENOUGH)]
    made = dict(zip([a.family for a in answers], leave_one_family_out(answers), strict=True))
    assert made == pytest.approx({"wild": 0.5, "tame": 9.0})


def test_both_errors_of_the_verdict_are_counted():
    answers = [
        answer("a", 0.2),  # right
        answer("a", 4.0),  # wrong
        answer("b", 0.3, total=9.0),  # right, and doubted
        answer("b", math.nan),  # no value
    ]
    halves, verdicts = after(answers, [1.0] * 4)
    assert verdicts == ["trust", "trust", "distrust", "distrust"]
    found = judged(answers, halves, verdicts)
    assert found["trusted_right"] == (1, 2)
    assert found["trusted_far_off"] == (1, 2)
    assert found["worst_trusted_error"] == pytest.approx(0.4)
    assert found["covered_right_trusted"] == (1, 2)
    assert found["wrong_distrusted"] == (1, 2)  # the missing value counts as wrong
    assert found["coverage"] == (2, 3)
    assert found["worst_family_coverage"] == (0.5, "a")
    assert found["decisions_right"] == (2, 2)  # both say better than 8, and 10 is


def test_a_fault_of_the_log_bounds_the_verdict():
    assert after([answer("a", 0.1, bound="caution")], [1.0])[1] == ["caution"]
    assert verdict_of(1.0, 10.0) == "trust" and verdict_of(math.inf, 10.0) == "distrust"


def record(family, value, method="random"):
    stats = {
        "evidence/scale": 10.0,
        "evidence/novelty": 1.0,
        "evidence/unsupported": 0.0,
        "evidence/highest_return": 20.0,
        "evidence/lowest_return": 0.0,
        "evidence/return_spread": 1.0,
        "evidence/consensus": 10.0,
        "evidence/view a": 10.0,
        "evidence/correction a": 0.1,
    }
    cell = {"task": family, "dataset": "noisy-00", "policy": "greedy", "method": method, "seed": 0}
    return {
        "experiment": cell,
        "family": family,
        "set": "calibration",
        "mark": {"mark": "covered"},
        "truth": {"value": 10.0},
        "scale": 10.0,
        "logged": 8.0,
        "value": value,
        "standard_error": 0.1,
        "status": "converged",
        "stats": stats,
        "checks": [{"name": "a", "verdict": "caution", "binding": False}],
        "case": {"horizon": None, "discount": 0.9},
        "dataset": {"transitions": 1000, "episodes": 10},
    }


def test_a_method_with_few_values_is_not_believed_more_than_all_methods():
    many = [record(f"f{i % 5}", 10.2) for i in range(ENOUGH)]
    for value, own in ((10.01, False), (13.0, True)):
        found = study([*many, record("f0", value, "fqe")])
        kept = shipped(found, "command")["multipliers"]
        assert set(kept) == {"LSPE(RandomFeatures", "FQE", "other"}
        assert (kept["FQE"] > kept["other"]) is own
        assert kept["FQE"] >= kept["other"]
    assert shipped(found, "command")["values"] == {"LSPE(RandomFeatures": ENOUGH, "FQE": 1}
    assert found["all"]["before"]["trusted_right"] == (0, 0)  # every check said caution


def test_the_command_reads_records_and_writes_the_page(tmp_path, capsys):
    lines = [json.dumps(record(f"f{i}", 10.0 + 0.1 * i) | {"profile": "proving"}) for i in range(5)]
    (tmp_path / "proving.jsonl").write_text("\n".join(lines) + "\n")
    where = tmp_path / "multipliers.json"
    code = main(
        ["benchmark", "calibrate", "proving", "--results", str(tmp_path), "--multipliers", str(where)]
    )
    assert code == 0
    assert "families that nobody tuned on" in (tmp_path / "verdict.md").read_text()
    assert json.loads(where.read_text())["multipliers"]["other"] > 0.0
    assert json.loads((tmp_path / "verdict.json").read_text())["all"]["after"]["cases"] == 5
    assert main(["benchmark", "calibrate", "states"]) == 2


def test_a_share_is_as_sure_as_its_families_agree():
    agreed = [(f"f{i}", True) for i in range(8)]
    assert family_interval(agreed) == (1.0, 1.0)
    one_bad = agreed + [("bad", False)] * 8
    low, high = family_interval(one_bad)
    assert low < 0.3 and high == 1.0
    assert all(math.isnan(end) for end in family_interval([]))


def test_sealed_families_make_no_multiplier_and_are_judged_apart():
    open_ones = [record(f"f{i % 5}", 10.1) for i in range(10)]
    wild = [record("shut", 19.0) | {"set": "sealed"}]
    found = study([*open_ones, *wild])
    assert found["pooled"] == study(open_ones)["pooled"]
    assert found["all"]["after"]["cases"] == 10
    assert found["sealed"]["after"]["coverage"] == (0, 1)
    assert "Sealed families" in page(found, "command")
    assert study(open_ones)["sealed"] is None
