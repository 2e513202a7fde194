"""What a command line says about data, as `load_dataset` takes it."""

import os
import re
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bcrl.errors import BadInput, Guess, in_shell, printable
from bcrl.opening import parse_json, read_json

if TYPE_CHECKING:
    from bcrl.data.dataset import Dataset

Ends = Literal["terminated", "truncated", "drop"]  # as in bcrl.data.dataset, which would import numpy
Missing = Literal["refuse", "forward", "mean"]
_EXAMPLE = '{"observation": ["x", "v"], "action": "a", "reward": "r", "episode": "id", "terminated": "end"}'


def read(data: str, **options: Any) -> "Dataset":  # noqa: ANN401 - what load_dataset takes
    """The data; what the reader guessed is a line on standard error."""
    from bcrl.data.sources import load_dataset

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Guess)
        dataset = load_dataset(data, **options)
    for note in dataset.notes:
        print(printable(f"note: {in_shell(note)}"), file=sys.stderr)
    return dataset


def reader_options(
    stack: int | None,
    columns: str | None,
    ends: Ends | None,
    missing: Missing | None = None,
    cohort: str | None = None,
) -> dict[str, Any]:
    """Options of the reader.

    Args:
        stack: frames to stack; None leaves it to the data.
        columns: ``action=dose,reward=outcome``, JSON, or the path of a JSON file: names of arrays or columns.
        ends: what ends are that nobody marked.
        missing: what to do about observations that are not there.
        cohort: a table's column of groups.
    """
    given = {"stack": stack, "ends": ends, "missing": missing, "cohort": cohort}
    found: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if columns is None:
        return found
    example = f"action=dose,reward=outcome, or JSON or a JSON file such as '{_EXAMPLE}'"
    if re.fullmatch(r"\w+=[^={}]+(,\w+=[^={}]+)*", columns):
        found["columns"] = dict(pair.split("=") for pair in re.split(r",(?=\w+=)", columns))
    elif columns.lstrip().startswith("{") or not os.path.exists(columns):
        found["columns"] = parse_json(columns, "--columns", example)
    else:
        found["columns"] = read_json(Path(columns), example)
    if not isinstance(found["columns"], dict):
        raise BadInput(f"--columns is {columns[:100]}; expected a JSON object such as '{_EXAMPLE}'.")
    return found
