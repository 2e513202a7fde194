"""`bcrl report` on damaged or mutated JSON: a page, or one line and exit code 2 (F46)."""

import copy
import json
import math
import random
import warnings

import pytest
from example_comparison import example

from bcrl.cli import main
from bcrl.comparison import Comparison
from bcrl.errors import BadInput
from bcrl.report.page import render

DEEP = json.loads("[" * 50 + "]" * 50)
ODD = [
    None, True, -1, 0, 7, 1e308, -1e308, 5e-324, math.nan, math.inf, -math.inf, 10**400, "", "x",
    "\x1b[2J\n\u202e", "9" * 5000, [], {}, [[]], [1.0], [None], ["a"], {"a": 1}, {"": None}, DEEP,
]  # fmt: skip


def small():
    """The example, with short curves, so that a mutation hits what matters."""
    record = json.loads(example().to_json())
    for estimate in [record["logged"], *(e for row in record["estimates"].values() for e in row.values())]:
        estimate["per_start"] = estimate["per_start"][:3]
        estimate["influence"] = None if estimate["influence"] is None else estimate["influence"][:3]
        estimate["curves"] = {name: series[:6] for name, series in estimate["curves"].items()}
    return record


def places(record, path=()):
    yield path
    if isinstance(record, dict | list):
        for key in record if isinstance(record, dict) else range(len(record)):
            yield from places(record[key], (*path, key))


def mutate(record, chance):
    """One to three changes: a value replaced, taken out, doubled, or given another name."""
    record = copy.deepcopy(record)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        path = chance.choice([path for path in places(record) if path])
        parent = record
        for key in path[:-1]:
            parent = parent[key]
        key, kind = path[-1], chance.choice(["replace", "replace", "replace", "delete", "again"])
        if kind == "replace":
            parent[key] = chance.choice(ODD)
        elif kind == "delete":
            del parent[key]
        elif isinstance(parent, list):
            parent.append(copy.deepcopy(parent[key]))
        else:
            parent[f"{key}2"] = copy.deepcopy(parent[key])
    return record


def page_or_one_line(text):
    told = ""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            render(Comparison.from_json(text))
        except BadInput as error:
            told = str(error)
    assert told.isprintable() and len(told) < 1000
    return not told


@pytest.mark.parametrize("seed", range(2))
def test_mutated_results_give_a_page_or_one_line(seed):
    chance, record = random.Random(seed), small()
    drawn = sum(page_or_one_line(json.dumps(mutate(record, chance))) for _ in range(60))
    assert 5 < drawn < 55  # both ends of the property were seen


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 44))
def test_many_more_mutations(seed):
    chance, record = random.Random(seed), small()
    for _ in range(60):
        page_or_one_line(json.dumps(mutate(record, chance)))


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"estimates":' * 3000, b"null"]
)
def test_damaged_files_are_one_line_and_exit_2(content, tmp_path, capsys):
    (tmp_path / "results.json").write_bytes(content)
    assert main(["report", str(tmp_path / "results.json")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1


def test_a_changed_number_is_seen_and_the_hash_can_be_taken_out(tmp_path):
    path = example().save(tmp_path / "results.json")
    text = path.read_text()
    path.write_text(text.replace('"seed": 7', '"seed": 8'))
    with pytest.raises(BadInput, match="does not match its hash"):
        Comparison.load(path)
    edited = json.loads(path.read_text())
    del edited["sha256"]
    path.write_text(json.dumps(edited))
    assert Comparison.load(path).seed == 8
