"""Families whose text was rewritten keep the keys of their truths and records; other edits get new ones."""

import hashlib
import json
import shutil
from pathlib import Path

from bcrl_bench.proving import family

RECORDS = Path(__file__).parents[3] / "results" / "proving.jsonl"


def text_hash(name):
    content = hashlib.sha256((family.FOLDER / f"{name}.py").read_bytes())
    for other in family.load_family(name).files:
        content.update((family.FOLDER / other).read_bytes())
    return content.hexdigest()[:16]


def test_every_kept_key_is_of_a_text_that_stands():
    """A line that no text leads to is a leftover of an edit that changed the numbers."""
    assert set(family.kept_keys()) <= {text_hash(name) for name in family.family_names()}
    assert len(set(family.kept_keys().values())) == len(family.kept_keys())


def test_the_records_carry_the_keys_of_today():
    records = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    kept = {record["experiment"]["task"]: record["settings"]["family"] for record in records}
    assert len(kept) > 10
    assert {name: family.family_hash(name) for name in kept} == kept


def test_another_edit_has_another_key(tmp_path, monkeypatch):
    """The text with one number changed is not in the table."""
    folder, name = tmp_path / "proving" / "families", "tabular"
    shutil.copytree(
        family.FOLDER.parent, folder.parent, ignore=shutil.ignore_patterns("weights", "__pycache__")
    )
    before, text = family.family_hash(name), (folder / f"{name}.py").read_text()
    monkeypatch.setattr(family, "FOLDER", folder)
    assert family.family_hash.__wrapped__(name) == before
    (folder / f"{name}.py").write_text(text.replace("noise=0.12", "noise=0.13"))
    assert family.family_hash.__wrapped__(name) not in {before, *family.kept_keys().values()}
