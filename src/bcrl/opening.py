"""Files that others made: only plain ones are opened, inside the folder that was named, and JSON stays flat.

A FIFO would hang its reader, a device never ends, a link may lead to any file of this machine.
"""

import json
import os
import stat
from pathlib import Path
from typing import Any

from bcrl.errors import BadInput

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}
# Levels of JSON. Our files have eight at most, Minari's spaces a few more; the parser's stack ends near 1000.
_DEEPEST = 60


def plain_file(path: Path, within: Path | None = None) -> Path:
    """The path, if it is a plain file that can be read; with `within`, one that lies inside that folder.

    Args:
        path: where the file should be; a link to a plain file counts as one.
        within: links that lead out of this folder are refused.
    """
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"No file at {shortened(path)}.") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{shortened(path)} cannot be opened ({reason(error)}).") from None
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "a socket")
        raise BadInput(f"{path} is {kind}; expected a plain file. Nothing was read.")
    if within is not None and not leads_inside(path, within):
        raise BadInput(
            f"{path} is a link out of {within}. Copy the file to where the link is; nothing was read."
        )
    if not os.access(path, os.R_OK):
        raise BadInput(f"{path} cannot be opened (no permission to read it).")
    return path


def leads_inside(path: Path, folder: Path) -> bool:
    """Whether what a path leads to, links followed, lies in a folder."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def read_json(path: Path, expected: str, within: Path | None = None) -> Any:  # noqa: ANN401 - JSON's own type
    """The content of a JSON file that others may have made; `expected` says what it should have been."""
    try:
        text = plain_file(path, within).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not text ({error}); expected {expected}.") from None
    return parse_json(text, str(path), expected)


def parse_json(text: str, place: str, expected: str) -> Any:  # noqa: ANN401 - JSON's own type
    """JSON of a bounded depth: whatever walks through it later cannot run out of stack."""
    try:
        content = json.loads(text)
    except RecursionError:
        content = None
        deep = True
    except ValueError as error:
        raise BadInput(f"{place} is not JSON ({error}); expected {expected}.") from None
    else:
        deep = _deeper_than(content, _DEEPEST)
    if deep:
        raise BadInput(f"{place} is JSON of more than {_DEEPEST} levels; expected {expected}.")
    return content


def reason(error: Exception) -> str:
    """Why a file could not be opened or written, in the system's words without the path."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _deeper_than(content: object, levels: int) -> bool:
    """By level, not by recursion: a stack may not hold what came from a file."""
    level = [content]
    for _ in range(levels + 1):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner += [value for value in item.values() if isinstance(value, dict | list)]
            elif isinstance(item, list):
                inner += [value for value in item if isinstance(value, dict | list)]
        if not inner:
            return False
        level = inner
    return True


def shortened(path: Path) -> str:
    """A path for a message, without the middle of a very long one."""
    text = str(path)
    return text if len(text) <= 200 else f"{text[:100]}...{text[-60:]}"
