""".npz files: plain arrays under the names of `Dataset.from_arrays`, or a whole dataset as `save_npz` writes
it.

Arrays of Python objects are pickles and are refused by numpy (`allow_pickle=False`).
"""

import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.data.dataset import Array, Dataset, Ends
from bcrl.data.sources.columns import from_named
from bcrl.data.storage.contents import header_of, named_arrays
from bcrl.data.storage.folder import assemble, check_header
from bcrl.data.storage.npy import refuse_claims_of_member
from bcrl.errors import BadInput
from bcrl.opening import parse_json, plain_file
from bcrl.writing import atomic_write

_HEADER = "bcrl_header"


def save_npz(dataset: Dataset, path: str | Path) -> Path:
    """Write a dataset into one compressed file; `load_dataset` gives the same bits back."""
    path = Path(path)
    with atomic_write(path) as file:
        arrays: dict[str, Any] = {_HEADER: np.array(json.dumps(header_of(dataset)))}
        arrays |= {name: np.asarray(array) for name, array in named_arrays(dataset).items()}
        np.savez_compressed(file, **arrays)
    return path


def load_npz(
    path: Path,
    columns: Mapping[str, str] | None = None,
    stack: int | None = None,
    num_actions: int | None = None,
    ordered: bool = True,
    ends: Ends | None = None,
) -> Dataset:
    """Read one .npz file; see `columns.from_named` for the options."""
    with open_npz(path) as file:
        if _HEADER in file.files:
            text = str(read_member(path, file, _HEADER))
            header = check_header(
                parse_json(text, f"{path}: {_HEADER}", "the header of a bcrl dataset"), str(path)
            )
            arrays = {name: read_member(path, file, name) for name in file.files if name != _HEADER}
            return assemble(header | ({} if stack is None else {"stack": stack}), arrays, str(path))
        return from_named(
            str(path),
            file.files,
            lambda name: read_member(path, file, name),
            columns,
            stack=1 if stack is None else stack,
            num_actions=num_actions,
            ordered=ordered,
            ends=ends,
        )


@contextmanager
def open_npz(path: Path, within: Path | None = None) -> Iterator["np.lib.npyio.NpzFile"]:
    """An .npz file, open for reading; whatever else it may be is refused."""
    with plain_file(path, within).open("rb") as handle:
        if not zipfile.is_zipfile(handle):
            raise BadInput(f"{path} is no .npz file, as np.savez writes it.")
        handle.seek(0)
        try:
            file = np.load(handle, allow_pickle=False)
        except (ValueError, OSError, EOFError, NotImplementedError, zipfile.BadZipFile) as error:
            raise BadInput(f"{path} is no .npz file without Python objects ({error}).") from error
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise BadInput(
                f"{path} holds a single array; expected an .npz file with several, as np.savez writes."
            )
        with file:
            yield file


def read_member(path: Path, file: "np.lib.npyio.NpzFile", name: str) -> Array:
    """One array of an open .npz file; `path` is for messages and for the file's size."""
    archive: Any = file.zip  # None once it is closed
    member = name if name in archive.namelist() else f"{name}.npy"
    try:
        refuse_claims_of_member(archive, member, path.stat().st_size, f"{path}: the array {name!r}")
        array: Array = file[name]
    except BadInput:
        raise
    except (ValueError, OSError, EOFError, SyntaxError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise BadInput(f"{path}: the array {name!r} cannot be read ({error}).") from error
    return array
