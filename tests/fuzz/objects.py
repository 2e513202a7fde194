"""Cases that no command line can hold: tables in memory, lookup tables, estimators, functions of a table.

The property is the same: an answer, or `BadInput` with one printable line.
"""

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas
from sklearn.dummy import DummyClassifier

import bcrl
from bcrl.errors import BadInput, Guess
from fuzz import mutations as mutate
from fuzz import seeds
from fuzz.mutations import Rng, pick

METHOD = "LSPE(RandomFeatures(dim=8, widths=(1.0,)))"


def main(words: Sequence[str]) -> int:
    """Evaluate a strange table by a strange policy; the exit code that a command would have."""
    rng = np.random.default_rng(int(words[0]))
    data, policy = table(rng), lambda: decides(rng)  # made inside `try`: `load_policy` may refuse it
    options: dict[str, Any] = {"ends": "truncated", "missing": pick(rng, ["forward", "mean", "refuse"])}
    if rng.random() < 0.2:
        options[pick(rng, ["ends", "missing", "columns"])] = mutate.strange(rng)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Guess)
            estimate = bcrl.evaluate(data, policy(), discount=0.9, method=METHOD, quiet=True, **options)
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    print(estimate.value, estimate.verdict)
    return 0


def table(rng: Rng) -> Any:
    """A DataFrame of visits, or plain columns, with some cells, names or types changed."""
    columns: dict[Any, Any] = seeds.visits(rng)
    for _ in range(int(rng.integers(0, 3))):
        name, how = pick(rng, list(columns)), rng.random()
        if how < 0.4:
            cells = list(columns[name])
            cells[int(rng.integers(len(cells)))] = mutate.strange(rng)
            columns[name] = cells
        elif how < 0.6:
            columns[mutate.other_name(rng)] = columns.pop(name)
        elif how < 0.8:
            columns[name] = pandas.Categorical([str(cell) for cell in columns[name]])
        else:
            columns[name] = pandas.to_datetime(np.arange(seeds.ROWS), unit="D")
    try:
        frame = pandas.DataFrame(columns)
    except UnicodeEncodeError:  # half a character, of which pandas makes no table
        return columns
    if rng.random() < 0.15:
        frame.columns = [frame.columns[0]] * len(frame.columns)
    if rng.random() < 0.1:
        frame = frame.iloc[: int(rng.integers(0, 3))]
    return columns if rng.random() < 0.1 else frame


def decides(rng: Rng) -> Any:
    """A policy as table people have it, sometimes with something strange in it."""
    how = rng.random()
    if how < 0.35:
        return bcrl.load_policy(lookup(rng), reads="age") if rng.random() < 0.8 else lookup(rng)
    if how < 0.55:
        model = DummyClassifier(strategy="constant", constant="low")
        names = pick(rng, [["age", "lab"], ["age"], ["lab", "age"], ["nothing"], []])
        seen = pandas.DataFrame({name: np.arange(3.0) for name in names}) if names else np.zeros((3, 2))
        return model.fit(seen, ["none", "low", "high"])
    answer = pick(rng, ["low", "low", 1, 7, None, "\x1b[2J", 0.5, [], {"low": 1.0}, np.nan])
    return lambda seen: [answer] * len(seen)


def lookup(rng: Rng) -> Any:
    """Decisions by age."""
    entries: dict[Any, Any] = dict.fromkeys(range(40, 44), "low")
    if rng.random() < 0.4:
        entries = {age: {"low": 0.5, "high": 0.5} for age in entries}
    for _ in range(int(rng.integers(0, 3))):
        key = pick(rng, list(entries))
        entries[key] = (
            mutate.strange(rng) if rng.random() < 0.5 else {"low": pick(rng, [0.5, -1, np.nan, "x"])}
        )
    return entries
