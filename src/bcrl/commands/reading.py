"""What a command line says about data, as `load_dataset` takes it."""

import json
from pathlib import Path
from typing import Any, Literal

from bcrl.errors import BadInput

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
    is_text = columns.lstrip().startswith("{")
    text = columns if is_text or not Path(columns).is_file() else Path(columns).read_text(encoding="utf-8")
    try:
        found["columns"] = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(
            f"--columns is neither JSON nor a JSON file: {error}. Example: '{_EXAMPLE}'."
        ) from None
    if not isinstance(found["columns"], dict):
        raise BadInput(f"--columns is {columns}; expected a JSON object such as '{_EXAMPLE}'.")
    return found
