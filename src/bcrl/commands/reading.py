"""What a command line says about data, as `load_dataset` takes it."""

import os
from pathlib import Path
from typing import Any, Literal

from bcrl.errors import BadInput
from bcrl.opening import parse_json, read_json

Ends = Literal["terminated", "truncated", "drop"]  # as in bcrl.data.dataset, which would import numpy
_EXAMPLE = '{"observation": ["x", "v"], "action": "a", "reward": "r", "episode": "id", "terminated": "end"}'


def reader_options(stack: int | None, columns: str | None, ends: Ends | None) -> dict[str, Any]:
    """Options of the reader.

    Args:
        stack: frames to stack; None leaves it to the data.
        columns: JSON, or the path of a JSON file, that maps names to arrays or columns.
        ends: what ends are that nobody marked.
    """
    given = {"stack": stack, "ends": ends}
    found: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if columns is None:
        return found
    example = f"JSON or a JSON file such as '{_EXAMPLE}'"
    if columns.lstrip().startswith("{") or not os.path.exists(columns):
        found["columns"] = parse_json(columns, "--columns", example)
    else:
        found["columns"] = read_json(Path(columns), example)
    if not isinstance(found["columns"], dict):
        raise BadInput(f"--columns is {columns[:100]}; expected a JSON object such as '{_EXAMPLE}'.")
    return found
