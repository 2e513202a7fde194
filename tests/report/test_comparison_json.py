"""Comparison: plain data that survives JSON, and files that are whole or not there."""

import base64
import io
import json
import math

import numpy as np
import pytest
from example_comparison import example
from PIL import Image

from bcrl.comparison import Comparison, Difference, picture
from bcrl.errors import BadInput
from bcrl.estimate import Check, Estimate, Interval, Status


def _estimate(value: float, verdict: str = "trust") -> Estimate:
    return Estimate(
        value=value, method="FQE()", discount=0.9, checks=(Check("c", value, 1.0, verdict, "because"),)
    )


def test_round_trip_keeps_everything():
    table = example()
    again = Comparison.from_json(table.to_json())
    assert again.to_json() == table.to_json()
    assert again.differences == table.differences
    assert again.checks == table.checks
    assert again.logged is not None and again.logged.interval == table.logged.interval
    ours, theirs = again.estimates["new actor"]["bcrl"], table.estimates["new actor"]["bcrl"]
    assert (
        ours.interval == theirs.interval and ours.checks == theirs.checks and ours.status is Status.CONVERGED
    )
    np.testing.assert_array_equal(ours.influence, theirs.influence)
    np.testing.assert_array_equal(ours.per_start, theirs.per_start)


def test_numbers_that_are_not_finite_survive():
    broken = Estimate(
        value=math.nan,
        method="m",
        discount=1.0,
        interval=Interval(-math.inf, math.inf),
        curves={"lspe": [1.0, math.inf]},
    )
    table = Comparison(
        {"p": {"m": broken}},
        differences={"p": {"m": Difference(math.nan, None, -math.inf, math.nan)}},
        probability_best={"m": {"p": math.nan}},
        truth={"p": {"value": np.float64(3.0), "standard_error": math.inf}},
    )
    again = Comparison.from_json(table.to_json())
    estimate = again.estimates["p"]["m"]
    assert math.isnan(estimate.value) and estimate.interval == Interval(-math.inf, math.inf)
    assert estimate.curves["lspe"][1] == math.inf
    assert again.differences["p"]["m"].lower_bound == -math.inf
    assert math.isnan(again.probability_best["m"]["p"])
    assert again.truth["p"] == {"value": 3.0, "standard_error": math.inf}


def test_a_single_estimate_is_a_comparison():
    estimate = Estimate(value=2.0, method="FQE()", discount=0.9, horizon=5, provenance={"seed": 3})
    table = Comparison.of(estimate, policy="mine")
    assert table.estimates["mine"]["FQE()"] is estimate
    assert (table.discount, table.horizon, table.seed) == (0.9, 5, 3)
    assert Comparison.from_json(estimate.to_json()).estimates["policy"]["FQE()"].value == 2.0


def test_the_best_supported_method_speaks():
    row = {"a": _estimate(1.0, "distrust"), "b": _estimate(2.0, "trust"), "c": _estimate(3.0, "trust")}
    assert Comparison({"p": row}).headline("p") == ("b", "trust")
    doubts = {"p": (Check("methods agree", 4.0, 2.0, "caution", "They differ."),)}
    assert Comparison({"p": row}, checks=doubts).headline("p") == ("b", "caution")


def test_methods_keep_their_order_when_rows_differ():
    table = Comparison({"p": {"a": _estimate(1.0)}, "q": {"b": _estimate(1.0), "a": _estimate(2.0)}})
    assert table.methods == ["a", "b"]


def test_save_leaves_one_whole_file(tmp_path):
    path = example().save(tmp_path / "deep" / "results.json")
    assert [p.name for p in path.parent.iterdir()] == ["results.json"]
    assert Comparison.load(path).to_json() == example().to_json()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"not json", "not JSON"),
        (b"[1, 2]", "no JSON object"),
        (b"{}", "no comparison"),
        (b'{"estimates": []}', "not a complete comparison"),
        (b'{"estimates": {"p": {"m": {"value": 1}}}}', "not a complete comparison"),
        (b'{"per_start": 3}', "not a complete comparison"),
        (b"\xff\xfe\x00", "not text"),
    ],
)
def test_bad_files_are_named_in_one_line(tmp_path, content, says):
    path = tmp_path / "results.json"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=says) as caught:
        Comparison.load(path)
    assert "results.json" in str(caught.value) and "\n" not in str(caught.value)


def test_a_truncated_file_and_a_missing_file_are_refused(tmp_path):
    path = example().save(tmp_path / "results.json")
    path.write_text(path.read_text()[:-50])
    with pytest.raises(BadInput, match="not JSON"):
        Comparison.load(path)
    with pytest.raises(BadInput, match="No file"):
        Comparison.load(tmp_path / "absent.json")


def test_a_json_of_an_older_version_without_newer_fields_loads():
    record = json.loads(example().to_json())
    for name in ("episodes_to_halve", "checks", "differences", "seed"):
        del record[name]
    assert Comparison.from_json(json.dumps(record)).policies == ["new actor", "bold actor"]


@pytest.mark.parametrize("shape", [(5, 7, 3), (5, 7, 1), (5, 7)])
def test_pictures_decode_to_the_same_pixels(shape):
    frame = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    decoded = np.asarray(Image.open(io.BytesIO(base64.b64decode(picture(frame)))))
    np.testing.assert_array_equal(decoded.reshape(frame.shape), frame)


def test_pictures_refuse_floats():
    with pytest.raises(BadInput, match="uint8"):
        picture(np.zeros((4, 4, 3)))
