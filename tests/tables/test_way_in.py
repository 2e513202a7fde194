"""From a DataFrame with words, dates and gaps to a dataset, and policies made for such a table (F50)."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.svm import LinearSVC
from tables.visits import FEATURES, pipeline, visits

from bcrl import BadInput, Dataset, evaluate, load_dataset, load_policy
from bcrl.doctor import examine
from bcrl.errors import Guess
from bcrl.policies.policy import actions_at, resolve_policy

ASKED = {"discount": 0.9, "method": "random", "ends": "truncated", "missing": "forward"}


def quietly(frame, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Guess)
        return load_dataset(frame, **({"ends": "truncated", "missing": "forward"} | options))


def chances(dataset, policy, rows=None):
    rows = dataset.rows if rows is None else rows
    found = actions_at(
        dataset,
        resolve_policy(dataset, load_policy(policy)),
        dataset.observe(rows),
        num_samples=1,
        generator=np.random.default_rng(0),
    )
    return (found.weights[:, :, None] * found.actions).sum(axis=1)


def test_guesses_are_said_and_right():
    with pytest.warns(Guess, match="action = treatment"):
        data = load_dataset(visits(), ends="truncated", missing="forward")
    assert data.num_episodes == 60 and data.lengths.tolist() == [5] * 60
    assert data.action_labels == ("high", "low", "none") and data.table.names == FEATURES
    assert np.allclose(np.unique(np.exp(data.log_prob)), [0.25, 0.35, 0.4])
    assert any("put in order" in note for note in data.notes)
    assert {f.what for f in examine(data) if f.severity == "note"} >= set(data.notes)


def test_a_map_is_no_guess_and_order_is_by_episode_and_date():
    frame = visits(gaps=0.0)
    columns = {"observation": ["pressure"], "action": "treatment", "reward": "outcome", "episode": "patient"}
    data = load_dataset(
        frame.sort_values(["patient", "date"]), columns=columns | {"step": "date"}, ends="truncated"
    )
    ordered = quietly(frame, columns=columns | {"step": "date"})
    assert data.notes == () and sorted(ordered.rewards) == sorted(data.rewards)
    first = frame[frame["patient"] == frame["patient"][0]].sort_values("date")
    assert np.allclose(
        ordered.rewards[ordered.offsets[0] : ordered.offsets[1]].sum(), first["outcome"][:-1].sum()
    )


def test_our_own_words_are_read_beside_a_map_too():
    """A map of one column left `reward` unread, and would have made `propensity` an observation."""
    frame = visits(gaps=0.0).rename(columns={"outcome": "reward", "treatment": "offer"})
    frame["terminated"] = frame.groupby("patient")["date"].transform("max") == frame["date"]
    dataset = quietly(frame, columns={"action": "offer"}, ends=None)
    assert dataset.log_prob is not None and dataset.terminated.sum() == 60
    assert not {"propensity", "reward", "terminated"} & set(dataset.table.names)
    assert "Read by their own names: reward, propensity, terminated." in dataset.notes[0]
    renamed = quietly(frame, columns={"action": "offer", "observation": ["propensity"]}, ends=None)
    assert renamed.log_prob is None and list(renamed.table.names) == ["propensity"]


def test_a_dataset_shows_itself_in_one_line():
    shown = repr(quietly(visits(gaps=0.0)))
    assert shown.startswith("Dataset from the pandas table: 60 episodes, 300 transitions; observation (5,)")
    assert shown.endswith("3 actions (high, low, none)") and "\n" not in shown


def test_pandas_polars_and_pyarrow_are_one_table():
    frame = visits()
    known = quietly(frame)
    for other in (pl.from_pandas(frame), pa.Table.from_pandas(frame, preserve_index=False)):
        data = quietly(other)
        assert np.array_equal(data.observations["observation"], known.observations["observation"])
        assert np.array_equal(data.actions, known.actions) and data.action_labels == known.action_labels
        shown = data.table.frame(data.observations["observation"][:3])
        assert type(shown).__module__.startswith(type(other).__module__.partition(".")[0])


def test_every_gap_is_told_at_once():
    frame = visits()
    frame.loc[3, "treatment"] = None
    frame.loc[7, "propensity"] = 1.5
    with pytest.raises(BadInput) as refused:
        load_dataset(frame)
    told = str(refused.value)
    assert all(name in told for name in ("'lactate'", "'ward'", "'treatment'", "'propensity'"))
    assert "missing='forward'" in told and "\n" not in told and len(refused.value.found) == 4
    with pytest.raises(BadInput, match=r"\(2 gaps\).*'action'.*'reward'"):
        load_dataset(frame[["patient", "lactate"]])


def test_gaps_are_carried_forward_or_take_the_mean_and_are_marked():
    frame = pd.DataFrame(
        {
            "episode": [1, 1, 1, 2, 2, 2],
            "x": [np.nan, 4.0, np.nan, np.nan, 8.0, 6.0],
            "action": [0, 1, 0, 1, 0, 1],
            "reward": [0.0] * 6,
        }
    )
    columns = {"observation": ["x"], "action": "action", "reward": "reward", "episode": "episode"}
    forward = quietly(frame, columns=columns).observations["observation"]
    assert forward.tolist() == [[6, 1], [4, 0], [4, 1], [6, 1], [8, 0], [6, 0]]
    mean = quietly(frame, columns=columns, missing="mean").observations["observation"]
    assert mean[2].tolist() == [6, 1]
    shown = quietly(frame, columns=columns).table.frame(forward)["x"]
    assert np.array_equal(shown, frame["x"], equal_nan=True)


def test_a_visit_counted_for_each_patient_is_a_step_and_one_with_a_number_of_its_own_an_episode():
    rows = {"action": [0, 1] * 4, "reward": [0.0] * 8, "x": np.arange(8.0)}
    counted = pd.DataFrame({"patient": list("aaaabbbb"), "visit": [0, 1, 2, 3] * 2, **rows})
    assert quietly(counted).num_episodes == 2
    own = pd.DataFrame({"patient": list("aaaabbbb"), "visit": [1, 1, 2, 2, 3, 3, 4, 4], **rows})
    data = quietly(own)
    assert data.num_episodes == 4 and data.num_units == 2


def test_dates_among_the_observations_come_back_as_dates():
    frame = visits(gaps=0.0)
    columns = {
        "observation": ["date", "age"],
        "action": "treatment",
        "reward": "outcome",
        "episode": "patient",
    }
    data = quietly(frame, columns=columns | {"step": "date"})
    shown = data.table.frame(data.observations["observation"])
    expected = frame.sort_values(["patient", "date"])["date"]
    assert set(shown["date"]) == set(expected) and data.observations["observation"][:, 0].min() == 0.0


def test_a_pipeline_sees_the_table_as_it_was():
    frame = visits()
    model, data = pipeline(frame), quietly(frame)
    rows = frame.assign(at=range(len(frame))).sort_values(["patient", "date"])
    kept = rows.groupby("patient", sort=False).head(5)
    first = kept.groupby("patient").first().index
    patient = kept.set_index("patient")
    shown = data.table.frame(data.observe(data.rows)["observation"])
    order = frame["patient"].drop_duplicates().tolist()
    expected = pd.concat([patient.loc[[one]] for one in order])
    assert len(first) == 60 and np.allclose(shown["lactate"], expected["lactate"], equal_nan=True)
    predicted = model.predict(expected[FEATURES])
    ours = chances(data, model).argmax(axis=1)
    assert [data.action_labels[code] for code in ours] == predicted.tolist()
    drawn = chances(data, load_policy(model, stochastic=True))
    assert np.allclose(drawn, model.predict_proba(expected[FEATURES])) and model.classes_.tolist() == [
        "high",
        "low",
        "none",
    ]


def test_a_pipeline_runs_from_table_to_verdict_with_the_doctor_saying_what_it_did():
    frame = visits()
    with pytest.warns(Guess):
        estimate = evaluate(frame, pipeline(frame), **ASKED)
    assert np.isfinite(estimate.value) and estimate.verdict in ("trust", "caution", "distrust")
    with pytest.warns(Guess):
        told = evaluate(frame, pipeline(frame), trained_on_log=True, **ASKED)
    assert told.value == estimate.value and told.verdict != "trust"
    assert any("made from this log" in reason for reason in told.reasons)


def test_models_that_refuse_gaps_get_them_filled_in_and_models_of_arrays_get_arrays():
    frame = visits().drop(columns=["ward"])
    filled = frame.sort_values(["patient", "date"]).assign(lactate=lambda f: f["lactate"].fillna(2.0))
    data = quietly(frame)
    plain = LogisticRegression().fit(filled[["lactate", "age"]], filled["treatment"])
    assert chances(data, plain).sum(axis=1) == pytest.approx(1.0)
    arrays = LinearSVC().fit(filled[["lactate", "pressure", "age"]].to_numpy(), filled["treatment"])
    assert chances(data, arrays).shape == (300, 3)
    with pytest.raises(BadInput, match="has no predict_proba"):
        resolve_policy(data, load_policy(arrays, stochastic=True))
    other = LogisticRegression().fit(filled[["age", "outcome"]], filled["treatment"])
    with pytest.raises(BadInput, match="'outcome', which is not among"):
        resolve_policy(data, load_policy(other))


def test_a_regressor_gives_continuous_actions():
    frame = visits(gaps=0.0).assign(dose=lambda f: f["treatment"].map({"none": 0.0, "low": 0.5, "high": 1.1}))
    columns = {"observation": ["lactate", "age"], "action": "dose", "reward": "outcome", "episode": "patient"}
    data = quietly(frame, columns=columns | {"step": "date"})
    model = LinearRegression().fit(frame[["lactate", "age"]], frame["dose"])
    assert data.num_actions is None
    assert np.allclose(
        chances(data, model)[:, 0],
        model.predict(data.table.frame(data.observe(data.rows)["observation"])),
        atol=1e-6,
    )


def test_functions_of_a_table_and_of_an_array():
    data = quietly(visits())
    rule = chances(data, lambda f: np.where(f["lactate"].fillna(0) > 2, "high", "none"))
    seen = data.table.frame(data.observe(data.rows)["observation"])
    assert np.array_equal(rule[:, 0] == 1.0, (seen["lactate"] > 2).to_numpy())
    assert np.array_equal(
        chances(data, lambda x: (x[:, 0] > 2).astype(int))[:, 1],
        data.observe(data.rows)["observation"][:, 0] > 2,
    )
    with pytest.raises(BadInput, match="'lots', which the log never took"):
        chances(data, lambda f: np.where(f["lactate"] > 2, "lots", "none"))


def test_lookup_tables():
    data = quietly(visits(gaps=0.0))
    wards = {"surgery": "high", "medicine": {"low": 0.25, "none": 0.75}}
    found = chances(data, load_policy(wards, reads="ward"))
    seen = data.table.frame(data.observe(data.rows)["observation"])["ward"]
    assert (found[(seen == "surgery").to_numpy(), 0] == 1.0).all()
    assert np.allclose(found[(seen == "medicine").to_numpy()], [0.0, 0.25, 0.75])
    frame = pd.DataFrame({"ward": ["surgery", "medicine"], "action": ["high", "none"]})
    assert np.array_equal(chances(data, frame)[:, 0] == 1.0, seen == "surgery")
    with pytest.raises(BadInput, match="no entry for 'medicine'"):
        chances(data, load_policy({"surgery": "high"}, reads="ward"))
    states = Dataset.from_arrays(np.arange(6.0)[:, None] % 2, [0, 1] * 3, np.zeros(6), [False] * 5 + [True])
    assert chances(states, {0.0: 1, 1.0: 0})[:, 0].tolist() == [0, 1, 0, 1, 0, 1]


def test_what_is_no_table_is_refused_in_one_line():
    with pytest.raises(BadInput, match="list is no data that bcrl reads"):
        load_dataset([1, 2])
    with pytest.raises(BadInput, match="missing is 'zero'"):
        load_dataset(visits(), missing="zero")
    with pytest.raises(BadInput, match="a DataFrame: the option 'stak'"):
        load_dataset(visits(), stak=3)


@pytest.mark.parametrize("word", ["a", "r", "end", "x"])
def test_a_column_of_lists_is_refused_by_name(word, tmp_path):
    rows = {"x": [0.0, 1.0], "a": [0.1, 0.2], "r": [1.0, 2.0], "end": [0, 1], word: [[0.0], [1.0]]}
    pyarrow.parquet.write_table(pa.table(rows), tmp_path / "log.parquet")
    columns = {"observation": ["x"], "action": "a", "reward": "r", "terminated": "end"}
    with pytest.raises(BadInput, match=f"column {word!r} holds list"):
        load_dataset(tmp_path / "log.parquet", columns=columns)
