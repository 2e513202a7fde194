"""One array as numpy writes it (.npy): its header is believed only as far as the file holds what it says.

Nothing is allocated and nothing is mapped before that. Arrays of Python objects are pickles and are refused.
"""

import tokenize
import zipfile
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from bcrl.data.dataset import Array
from bcrl.errors import BadInput
from bcrl.opening import plain_file

# What numpy's reader of headers raises on nonsense.
_NONSENSE = (
    ValueError, TypeError, KeyError, OSError, EOFError, SyntaxError, MemoryError, RecursionError,
    OverflowError, tokenize.TokenError, zipfile.BadZipFile,
)  # fmt: skip
# Deflate makes at most 1032 bytes of one.
_MOST_PACKED = 1100


def open_npy(path: Path, within: Path) -> Array:
    """The array of a .npy file inside a folder, mapped: its bytes are read when they are looked at."""
    with plain_file(path, within).open("rb") as file:
        shape, fortran, kind = _header(file, str(path))
        begin, held = file.tell(), path.stat().st_size - file.tell()
    _refuse_claims(shape, kind, held, str(path))
    if 0 in shape:  # an empty file cannot be mapped
        return np.empty(shape, kind)
    mapped = np.memmap(path, kind, "r", begin, shape, "F" if fortran else "C")
    # A plain view: indexing np.memmap itself costs Python calls for every batch.
    return np.asarray(mapped)


def refuse_claims_of_member(
    archive: zipfile.ZipFile, name: str, size: int, place: str
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Refuse a member of an .npz file that is no array, or that says it holds more than the file could; else
    its shape, whether its columns come first, and its type.

    Args:
        archive: the open zip file.
        name: of the member.
        size: of the zip file in bytes.
        place: the member, for messages.
    """
    about = archive.getinfo(name)
    if about.compress_size > size or about.file_size > _MOST_PACKED * (about.compress_size + 1):
        raise BadInput(f"{place} says that it holds {about.file_size} bytes, more than its file does.")
    try:
        with archive.open(about) as member:
            shape, fortran, kind = _header(member, place)
            held = about.file_size - member.tell()
    except (NotImplementedError, RuntimeError) as error:  # a compression that zipfile lacks, a password
        raise BadInput(f"{place} cannot be read ({error}).") from error
    _refuse_claims(shape, kind, held, place)
    return shape, fortran, kind


def _header(file: IO[bytes], place: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran, kind = read(file)
    except _NONSENSE as error:
        why = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise BadInput(f"{place} cannot be read ({why}); expected a whole .npy file.") from None
    if kind.hasobject:
        raise BadInput(f"{place} cannot be read: it holds Python objects, which can run code.")
    return shape, bool(fortran), kind


def _refuse_claims(shape: tuple[int, ...], kind: np.dtype[Any], held: int, place: str) -> None:
    claimed = prod(shape) * kind.itemsize  # of Python's whole numbers, which do not wrap around
    if min(shape, default=0) < 0 or claimed > held:
        raise BadInput(
            f"{place} cannot be read: its header says {shape} of {kind}, {claimed} bytes, but it "
            f"holds {held}. Is the file whole?"
        )
