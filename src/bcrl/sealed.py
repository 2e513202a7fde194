"""Our own files carry a hash: a flipped bit, a cut or a foreign file is seen before anything is believed.

    checkpoints       the content, then SEAL and its SHA-256
    JSON              the last entry, "sha256", is the hash of the text before it
    folders           SHA256SUMS, as the command sha256sum writes it

The hash tells damage, not malice: who can write a file can write its hash.
"""

import hashlib
import logging
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bcrl.errors import BadInput, printable
from bcrl.opening import parse_json, plain_file
from bcrl.writing import atomic_write

SUMS = "SHA256SUMS"
_SEAL = b"\nbcrl sha256 "
_TAIL = re.compile(r',\s*"sha256": "([0-9a-f]{64})"\s*\}\Z')


class Damaged(BadInput):
    """A file of ours that is not as it was written."""


def write_sealed(path: Path, content: bytes) -> None:
    """Write bytes that `read_sealed` gives back, or refuses."""
    with atomic_write(path) as file:
        file.write(content)
        file.write(_SEAL + hashlib.sha256(content).digest())


def read_sealed(path: Path) -> bytes:
    """What `write_sealed` wrote."""
    content, seal, digest = plain_file(path).read_bytes().rpartition(_SEAL)
    if not seal or hashlib.sha256(content).digest() != digest:
        raise Damaged(f"{path} is damaged, or not a file of this version of bcrl.")
    return content


def sealed_json(text: str) -> str:
    """The text of a JSON object with its own hash as the last entry."""
    body = text.rstrip().removesuffix("}").rstrip()
    return f'{body}, "sha256": "{_hash(body)}"}}'


def unsealed_json(text: str, place: str, expected: str) -> dict[str, Any]:
    """The object of a JSON text, without its hash, which must fit if it is there (0.1 wrote none)."""
    found = _TAIL.search(text)
    record = parse_json(text, place, expected)
    if not isinstance(record, dict):
        raise Damaged(f"{place} is no JSON object; expected {expected}.")
    told = record.pop("sha256", None)
    if told is not None and (found is None or _hash(text[: found.start()]) != told):
        raise Damaged(
            f"{place} does not match its hash: damaged, or edited. Make it again, or take out the entry "
            "'sha256' to read it as it is."
        )
    return record


def seal_folder(folder: Path, names: Iterable[str]) -> None:
    """Write the hashes of a folder's files beside them, last of all."""
    with atomic_write(folder / SUMS) as file:
        file.write(_sums(folder, names))


def check_folder(folder: Path, names: Iterable[str], *, always: bool = True) -> None:
    """Refuse a folder whose files are not as they were sealed.

    Args:
        folder: as `seal_folder` left it.
        names: the files that may be there; one that is missing must have been missing then.
        always: False lets a folder without hashes pass, as 0.1 wrote estimates.
    """
    there = [name for name in names if os.path.lexists(folder / name)]
    sealed = os.path.lexists(folder / SUMS)
    if not sealed and not always:
        return
    if not sealed or plain_file(folder / SUMS, folder).read_bytes() != _sums(folder, there):
        raise Damaged(f"{folder} is damaged: its files do not match {SUMS} (see: sha256sum -c {SUMS}).")


def set_aside(path: Path, why: str) -> None:
    """Rename a damaged file or folder to NAME.damaged, and say so in one line; the work starts over."""
    aside = path.with_name(f"{path.name}.damaged")
    number = 1
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{path.name}.damaged{number}")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return  # another process was faster
    line = f"{why} It was renamed to {aside.name}, and the work starts over."
    logging.getLogger("bcrl").warning("%s", printable(line))


def _sums(folder: Path, names: Iterable[str]) -> bytes:
    contents = {name: plain_file(folder / name, folder).read_bytes() for name in sorted(names)}
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in contents.items()]
    return "".join(lines).encode()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
