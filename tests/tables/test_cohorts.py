"""Groups of episodes as guardrails: a policy that is better on average and harms one ward is found out."""

import warnings

import numpy as np
import pandas as pd
import pytest
from skl2onnx import to_onnx
from sklearn.tree import DecisionTreeClassifier

from bcrl import BadInput, compare
from bcrl.cli import main
from bcrl.comparison import Comparison
from bcrl.errors import Guess
from bcrl.report import write_report


def wards(patients: int = 300, seed: int = 0) -> pd.DataFrame:
    """The drug helps in three wards and harms in one; the log gives it by a coin."""
    rng = np.random.default_rng(seed)
    rows = []
    for patient in range(patients):
        ward, pulse = ["north", "south", "east", "west"][patient % 4], rng.normal()
        for day in range(4):
            drug = int(rng.integers(2))
            effect = -1.0 if ward == "west" else 1.0
            rows.append((patient, day, ward, pulse, drug, drug * effect + 0.1 * rng.normal() + 1.0))
            pulse = 0.5 * pulse + rng.normal()
    return pd.DataFrame(rows, columns=["patient", "day", "ward", "pulse", "drug", "outcome"])


@pytest.fixture(scope="module")
def compared():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Guess)
        return compare(
            wards(),
            {"always": lambda x: np.ones(len(x), int)},
            discount=0.9,
            horizon=3,
            methods={"quick": "random"},
            ends="truncated",
            cohort="ward",
        )


def test_the_group_that_is_harmed_comes_first(compared):
    found = compared.cohorts
    assert found[0].name == "west" and len(found) == 4
    assert found[0].difference.decision == "worse"
    assert [row.difference.decision for row in found[1:]] == ["better"] * 3
    gain = 0.5 * (1 + 0.9 + 0.81)  # of the drug over a coin, in a ward where it helps
    assert found[0].difference.value == pytest.approx(-gain, abs=0.25)
    assert found[1].difference.value == pytest.approx(gain, abs=0.25)
    assert compared.differences["always"]["quick"].decision == "better"  # which the average hides


def test_page_and_json_show_the_groups(compared, tmp_path):
    again = Comparison.from_json(compared.to_json())
    assert again.cohorts == compared.cohorts
    page = write_report(again, tmp_path / "page.html").read_text()
    assert page.index("For whom?") < page.index(">west<") < page.index(">north<")
    assert "Worse in west." in page[: page.index("For whom?")]


def test_a_fault_of_the_log_counts_in_every_group(compared):
    """With three steps the dropped fourth ones do not matter; without a horizon they do."""
    assert not [row for row in compared.cohorts if "dropped" in row.reason]
    with pytest.warns(Guess):
        endless = compare(
            wards(160),
            {"always": lambda x: np.ones(len(x), int)},
            discount=0.9,
            methods={"quick": "consensus"},
            ends="truncated",
            cohort="ward",
        )
    assert any("dropped with their reward" in row.reason for row in endless.cohorts), [
        row.reason for row in endless.cohorts
    ]
    assert all(row.verdict != "trust" for row in endless.cohorts)


def test_small_and_many_groups():
    frame = wards(40)
    frame["age"] = frame["patient"]
    asked = {"discount": 0.9, "horizon": 3, "methods": {"quick": "random"}, "ends": "truncated"}
    policies = {"always": lambda x: np.ones(len(x), int)}
    with pytest.warns(Guess), pytest.raises(BadInput, match="40 groups; expected at most 20"):
        compare(frame, policies, columns={"cohort": "age"}, **asked)
    frame["age"] = np.where(frame["patient"] < 38, "old", "young")
    with pytest.warns(Guess):
        old, young = compare(frame, policies, columns={"cohort": "age"}, **asked).cohorts
    assert old.name == "old" and old.value is not None
    assert young.value is None and young.verdict == "distrust" and "too few" in young.reason


def test_on_the_command_line(tmp_path, capsys):
    frame = wards(80)
    frame.to_csv(tmp_path / "wards.csv", index=False)
    seen = frame[["pulse"]].to_numpy(np.float32)
    model = DecisionTreeClassifier(max_depth=1).fit(seen, (seen[:, 0] > 0).astype(int))
    graph = to_onnx(model, seen[:1], options={"zipmap": False})
    (tmp_path / "rule.onnx").write_bytes(graph.SerializeToString())
    columns = '{"observation": ["pulse"], "action": "drug", "reward": "outcome", "episode": "patient"}'
    command = ["compare", str(tmp_path / "wards.csv"), f"rule={tmp_path / 'rule.onnx'}", "--discount", "0.9"]
    command += ["--columns", columns, "--ends", "truncated", "--horizon", "3", "--method", "random"]
    command += ["--output-name", "probabilities", "--output", "probabilities", "--cohort", "ward"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "Groups, worst first" in out and "west" in out and "random features" in out
