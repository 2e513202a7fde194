"""Figures: numbers in, drawings out, that show what they should and nothing outside of their frame."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcrl.estimate import Estimate, Interval, Status
from bcrl.report import figures
from bcrl.report.axes import axis
from bcrl.report.drawing import thin
from bcrl.report.spans import shared_axis, span
from bcrl.report.words import decimals_of, interval_text, number, percent, seconds, signed, value_text


def _points(path: str) -> np.ndarray:
    return np.asarray([[float(x) for x in pair.split()] for pair in re.findall(r"[ML]([^ML]+)", path)])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"), (math.nan, "not a number"), (math.inf, "∞"), (-math.inf, "−∞"), (0.0, "0"), (-0.0, "0"),
        (61.34, "61.3"), (-2.5, "−2.5"), (1234.6, "1,235"), (0.1704, "0.17"), (3.1e12, "3.1 × 10¹²"),
        (-2e-7, "−2 × 10⁻⁷"), (1.0, "1"), (100.0, "100"),
    ],
)  # fmt: skip
def test_numbers_read_well(value, text):
    assert number(value) == text


def test_decimals_follow_the_error():
    assert [decimals_of(e) for e in (0.034, 0.34, 3.4, 34.0, 340.0, 0.0, math.inf, None)] == [
        3, 2, 1, 1, 0, None, None, None,
    ]  # fmt: skip
    assert value_text(Estimate(61.345, "m", 0.9, interval=Interval(57.9, 64.8))) == "61.3"
    assert interval_text(Interval(1.5e12, 4.7e12)) == "(1.5 to 4.7) × 10¹²"
    assert value_text(Estimate(math.nan, "m", 0.9, status=Status.DIVERGED)) == "diverged"


def test_probabilities_never_claim_certainty():
    assert [percent(p) for p in (1.0, 0.9995, 0.5, 0.0, None)] == [
        "> 99.9%",
        "> 99.9%",
        "50%",
        "< 0.1%",
        "–",
    ]
    assert (signed(2.0), signed(-2.0), signed(0.0)) == ("+2", "−2", "0")
    assert (seconds(3.21), seconds(75), seconds(7260)) == ("3.2 s", "1 min 15 s", "2 h 1 min")


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.sampled_from(["linear", "signed log"]))
def test_ticks_lie_inside_and_rise(a, b, scale):
    drawn = axis(min(a, b), max(a, b), scale)
    places = [place for place, _ in drawn.ticks]
    assert all(-1e-6 <= place <= 1 + 1e-6 for place in places)
    assert places == sorted(places)
    assert len(drawn.ticks) <= 12


@given(st.floats(1e-9, 1e9), st.floats(1e-9, 1e9))
def test_log_ticks_lie_inside(a, b):
    drawn = axis(min(a, b), max(a, b), "log")
    assert all(-1e-6 <= place <= 1 + 1e-6 for place, _ in drawn.ticks)
    assert drawn.place(drawn.low) == pytest.approx(0.0, abs=1e-9)
    assert drawn.place(drawn.high) == pytest.approx(1.0)


def test_tick_labels_name_their_places():
    drawn = axis(0.0, 10.0)
    assert drawn.ticks == tuple((k / 10, str(k)) for k in range(0, 11, 2))
    assert [label for _, label in axis(1e-8, 1.0, "log").ticks] == ["10⁻⁸", "10⁻⁶", "10⁻⁴", "10⁻²", "1"]
    assert [label for _, label in axis(-1e6, 1e6, "signed log", count=4).ticks] == [
        "−10⁶",
        "−10³",
        "0",
        "10³",
        "10⁶",
    ]


def test_an_lspe_curve_that_settles_is_drawn_on_a_linear_axis_with_the_truth():
    values = 50 * (1 - 0.98 ** np.arange(1, 400))
    figure = figures.lspe_curve(values.tolist(), 0.98, 55.0)
    assert figure.y.scale == "linear" and "0.980" in figure.note
    points = _points(figure.lines[0].path)
    assert points.min() >= 0 and points.max() <= 1000
    assert np.all(np.diff(points[:, 1]) <= 0.11)  # rising value, falling coordinate
    assert figure.rules[0][1] == "truth 55" and 0 < figure.rules[0][0] < 1


@pytest.mark.parametrize(
    "values", [1.02 ** np.arange(1, 900), (-1.05) ** np.arange(1, 400), [1.0, 1e200, np.inf]]
)
def test_an_lspe_curve_that_blows_up_gets_a_log_axis(values):
    figure = figures.lspe_curve(list(values), 1.05)
    assert figure.y.scale == "signed log" and "blows up" in figure.note
    assert np.isfinite(_points(figure.lines[0].path)).all()


def test_a_thinned_curve_is_spread_over_all_iterations():
    assert figures.lspe_curve([1.0, 2.0, 3.0], iterations=900).x.high == 900
    assert figures.lspe_curve([1.0, 2.0, 3.0]).x.high == 3
    assert figures.over_time({"m": [1.0, 2.0]}, 500).x.high == 499
    assert figures.effective_sample_size([9.0, 3.0], 50).x.high == 49


def test_coverage_counts_what_lies_beyond_the_data():
    rng = np.random.default_rng(0)
    data = rng.gamma(4, 10, 5000)
    other, distant = rng.gamma(4, 10, 5000), 100 * rng.gamma(4, 10, 5000)
    same, far = figures.coverage(data, other), figures.coverage(data, distant)
    assert re.match(r"(0\.\d|1|1\.\d|2)%", same.note)
    assert far.note.startswith("> 99.9%") or far.note.startswith("100%")
    for figure in (same, far):
        assert [line.name for line in figure.lines] == ["data", "policy"]
        assert sum(figure.lines[0].y) == pytest.approx(100) and sum(figure.lines[1].y) == pytest.approx(100)


def test_singular_values_say_what_is_missing():
    assert "condition number 1,000" in figures.singular_values([1000.0, 10.0, 1.0]).note
    assert "1 of 3 directions" in figures.singular_values([1.0, 0.5, 0.0]).note


def test_every_method_keeps_its_place_in_the_palette():
    figure = figures.over_time({"a": [1.0, 2.0], "b": [], "c": [2.0, 3.0]})
    assert [(line.name, line.slot) for line in figure.lines] == [("a", 0), ("c", 2)]


def test_a_method_that_blew_up_does_not_flatten_the_others():
    figure = figures.over_time({"calm": [1.0, 2.0, 3.0] * 20, "wild": [1.0] * 50 + [1e9] * 10})
    assert figure.y.high < 10


def test_training_curves_choose_their_axis_and_calm_the_noise():
    assert figures.training("loss", (10.0 ** -np.linspace(0, 4, 30)).tolist()).y.scale == "log"
    assert figures.training("loss", np.linspace(1, 2, 30).tolist()).y.scale == "linear"
    rng = np.random.default_rng(0)
    noisy = figures.training("loss", rng.normal(5, 1, 1000).tolist(), np.arange(0, 10000, 10.0).tolist())
    assert [line.name for line in noisy.lines] == ["records", "running median"]
    assert noisy.lines[1].y.std() < 0.4 * noisy.lines[0].y.std()
    assert "1 records are not finite" in figures.training("loss", [1.0, math.nan, 2.0]).note


def test_thinning_keeps_ends_and_extremes():
    values = np.sin(np.arange(10000) / 50.0)
    values[4321] = 99.0
    kept = thin(values, 200)
    assert len(kept) <= 200 and kept[0] == 0 and kept[-1] == 9999 and 4321 in kept


def test_a_diverged_value_is_an_arrow_and_leaves_the_axis_alone():
    on = shared_axis([40.0, 62.0], [58.0, 66.0], [3e12, math.nan, math.inf])
    assert on.high < 100
    assert span(3e12, Interval(1e12, 5e12), on).beyond == "high"
    assert span(-math.inf, None, on).beyond == "low"
    assert span(math.nan, None, on).dot is None
    cut = span(62.0, Interval(-1e9, math.inf), on)
    assert cut.cut_low and cut.cut_high and cut.width == 100 and cut.beyond == ""


def test_a_near_doubted_value_is_still_on_the_axis():
    on = shared_axis([40.0, 62.0], [58.0, 66.0], [70.0])
    assert on.low < 40 and on.high > 70
    assert shared_axis([math.nan], [], [math.nan]).low < 0
