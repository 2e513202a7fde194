"""Answers in Python and for scripts: short texts, tables, pictures, ranking, exit codes (F51)."""

import sys

import numpy as np
import onnxruntime
import pytest
from skl2onnx import to_onnx
from sklearn.linear_model import LogisticRegression
from tables.visits import visits

from bcrl import Dataset, compare
from bcrl.cli import main
from bcrl.comparison import Comparison
from bcrl.progress import watched


@pytest.fixture(scope="module")
def compared():
    rng = np.random.default_rng(0)
    s = rng.normal(size=(600, 1))
    a = rng.integers(0, 2, size=600)
    data = Dataset.from_arrays(s, a, a * (s[:, 0] > 0) + 1.0, np.arange(600) % 3 == 2)
    policies = {"never": lambda x: np.zeros(len(x), int), "right": lambda x: (x[:, 0] > 0).astype(int)}
    return compare(data, policies, discount=0.9, methods={"random": "random"}, title="Two rules")


def test_texts_tables_and_pictures(compared):
    estimate = compared.estimates["right"]["random"]
    assert (
        repr(estimate).count("\n") == 0 and estimate.verdict in repr(estimate) and len(repr(estimate)) < 120
    )
    assert repr(compared).splitlines()[0].startswith("right by random: ")
    frame = compared.to_frame()
    assert frame["policy"].tolist() == ["right", "never"] and frame["value"].is_monotonic_decreasing
    assert frame["probability best"][0] > 0.5 and estimate.to_frame()["value"][0] == estimate.value
    assert "<script" not in compared._repr_html_() and "right" in compared._repr_html_()
    assert len(compared.plot().get_yticklabels()) == 2


def test_one_method_ranks_all_policies(compared):
    assert compared.ranking() == ("random", ["right", "never"])
    assert Comparison.from_json(compared.to_json()).title == "Two rules"


def test_a_classifier_from_skl2onnx_runs_on_the_command_line(tmp_path, capsys, monkeypatch):
    frame = visits(gaps=0.0).drop(columns=["ward"])
    columns = ["lactate", "pressure", "age"]
    frame["treatment"] = frame["treatment"].map({"none": 0, "low": 1, "high": 2})
    model = LogisticRegression().fit(frame[columns].to_numpy(np.float32), frame["treatment"])
    graph = to_onnx(model, frame[columns].to_numpy(np.float32)[:1], options={"zipmap": False})
    (tmp_path / "model.onnx").write_bytes(graph.SerializeToString())
    assert onnxruntime.InferenceSession(str(tmp_path / "model.onnx")).get_outputs()[1].name == "probabilities"
    frame.to_csv(tmp_path / "visits.csv", index=False)
    command = ["evaluate", str(tmp_path / "visits.csv"), str(tmp_path / "model.onnx"), "--discount", "0.9"]
    command += ["--ends", "truncated", "--method", "quick=random", "--output", "probabilities"]
    command += ["--output-name", "probabilities", "--trained-on-log", "--title", "Doses"]
    code = main([*command, "--fail-on", "caution", "--out", str(tmp_path / "out")])
    out, err = capsys.readouterr()
    assert code == 3 and "quick" in out and "Guessed from the columns' names" in err
    assert "<h1>Doses</h1>" in (tmp_path / "out" / "report.html").read_text()
    monkeypatch.setattr(sys, "argv", ["bcrl"])
    assert main(command) == 0


def test_the_doctor_lists_every_gap_on_a_line_of_its_own(tmp_path, capsys):
    visits().to_csv(tmp_path / "visits.csv", index=False)
    assert main(["doctor", str(tmp_path / "visits.csv"), "--ends", "truncated"]) == 2
    assert capsys.readouterr().out.count("error: column") == 2
    gaps = ["--ends", "truncated", "--missing", "mean"]
    assert main(["doctor", str(tmp_path / "visits.csv"), *gaps]) == 0
    assert "was missing in" in capsys.readouterr().out


def test_messages_name_options_as_a_command_line_takes_them(tmp_path, capsys):
    frame = visits().rename(columns={"treatment": "offer"})
    frame.to_csv(tmp_path / "visits.csv", index=False)
    command = ["doctor", str(tmp_path / "visits.csv"), "--ends", "truncated"]
    assert main(command) == 2
    assert """--columns '{"action": ...}'""" in capsys.readouterr().err
    assert main([*command, "--columns", "action=offer"]) == 2
    told = capsys.readouterr()
    assert "--missing forward or --missing mean" in told.out and "missing='" not in told.out + told.err
    named = "reward=outcome,action=offer,episode=patient"
    assert main([*command, "--columns", named, "--missing", "mean"]) == 0
    assert main([*command, "--columns", "offer"]) == 2
    assert "action=dose,reward=outcome" in capsys.readouterr().err


def test_nobody_watches_a_test():
    assert not watched()
