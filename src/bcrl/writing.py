"""Files that are there whole or not at all, whatever is killed when and whoever else writes beside it."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bcrl.errors import BadInput
from bcrl.opening import reason, shortened

_PROBE = 1 << 20  # bytes


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """A file to write `path` into: aside, under a name that no other process has, then synced and renamed.

    Readers see the old file or the new one. What an error leaves half written is removed; what a kill leaves
    is a `.part` that nobody reads. A full disk or a place without permission is the caller's mistake, told in
    one line.
    """
    make_folder(path.parent)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with writing_into(path):
            with aside.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
    finally:
        with contextlib.suppress(OSError):  # what could not be written cannot be removed either
            aside.unlink(missing_ok=True)
    sync_folder(path.parent)


@contextlib.contextmanager
def writing_into(place: Path) -> Iterator[None]:
    """What the system refuses to write while this lasts is told in one line."""
    try:
        yield
    except OSError as error:
        raise BadInput(
            f"{shortened(place)} cannot be written ({reason(error)}). Choose another place, or make room."
        ) from error


def make_folder(folder: Path) -> Path:
    """The folder, made if it is not there."""
    with writing_into(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def writable_folder(folder: Path) -> Path:
    """The folder, if results can be written there: known before the hours that make them.

    A probe is written and removed, as large as a small result.
    """
    make_folder(folder)
    with writing_into(folder), tempfile.TemporaryFile(dir=folder) as probe:
        probe.write(os.urandom(_PROBE))
        probe.flush()
        os.fsync(probe.fileno())
    return folder


def writable_file(path: Path) -> Path:
    """The path, if a file can be written there."""
    if os.path.isdir(path):
        raise BadInput(f"{path} is a folder; expected the name of a file to write.")
    writable_folder(path.parent)
    return path


def sync_folder(folder: Path) -> None:
    """Make renames in a folder last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
