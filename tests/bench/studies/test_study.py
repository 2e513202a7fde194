"""Rows of a study: made once, kept as they come, forgotten when the method is another one."""

from dataclasses import dataclass

import pytest

from bcrl_bench.studies import study
from bcrl_bench.studies.study import Study


@dataclass(frozen=True)
class Method:
    steps: int = 3


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "RESULTS", tmp_path)
    return tmp_path


def make(world, seed):
    return {"world": world, "seed": seed, "error": 0.5}


def test_only_missing_rows_are_made(results):
    made = []
    rows = Study("some", "command", key=("world", "seed"))
    rows.run([("a", 0), ("b", 0)], make)
    found = rows.run([("a", 0), ("a", 1)], lambda *key: made.append(key) or make(*key))
    assert made == [("a", 1)] and [(row["world"], row["seed"]) for row in found] == [
        ("a", 0),
        ("b", 0),
        ("a", 1),
    ]
    rows.run([("b", 0)], lambda *key: make(*key) | {"error": 0.1}, again=True)
    assert [row["error"] for row in rows.rows()] == [0.5, 0.5, 0.1]
    assert (results / "some.json").read_text().startswith('{\n"command": "command",\n"rows": [\n{"world"')


def test_rows_of_another_method_are_forgotten():
    Study("some", "command", key=("world", "seed"), method=Method()).run([("a", 0)], make)
    assert len(Study("some", "command", key=("world", "seed"), method=Method()).rows()) == 1
    assert Study("some", "command", key=("world", "seed"), method=Method(steps=4)).rows() == []
