"""Truths and marks of stepped worlds, made once and kept in truths.jsonl: a line a case.

They take core-hours; logs are made again in seconds, and exact worlds know their values. A line is found by
the name that a case has in the cache, a hash of all that it depends on: where anything changed, it is made
anew. `bcrl benchmark prepare proving --keep` writes the lines.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from bcrl.writing import atomic_write

KEPT = Path(__file__).with_name("truths.jsonl")


@cache
def kept_truths(path: Path = KEPT) -> dict[str, dict[str, Any]]:
    """Facts of cases, by the case's name in the cache."""
    if not path.is_file():
        return {}
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {line["name"]: line["facts"] for line in lines}


def keep_truths(found: dict[str, dict[str, Any]], path: Path = KEPT) -> int:
    """Write these beside the ones that are there; the number of new ones."""
    before = kept_truths(path)
    merged = before | found
    with atomic_write(path) as file:
        for name in sorted(merged, key=lambda name: (merged[name]["case"]["family"], name)):
            file.write((json.dumps({"name": name, "facts": merged[name]}) + "\n").encode())
    kept_truths.cache_clear()
    return len(merged) - len(before)
