"""D4RL-style HDF5: observations, actions, rewards, terminals, timeouts, and often next_observations, laid end
to end.

`timeouts` are our `truncated`. Without `next_observations` the last row of a timed-out episode is dropped.
The logging probabilities that some D4RL files hold are taken when asked for: columns={"log_prob":
"infos/action_log_probs"}.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path

import h5py
import numpy as np

from bcrl.data.dataset import Array, Dataset, Ends
from bcrl.data.sources.columns import from_named
from bcrl.errors import BadInput
from bcrl.opening import plain_file


def load_hdf5(
    path: Path,
    columns: Mapping[str, str] | None = None,
    stack: int = 1,
    num_actions: int | None = None,
    ordered: bool = True,
    ends: Ends | None = None,
) -> Dataset:
    """Read one HDF5 file; see `columns.from_named` for the options."""
    with open_hdf5(path) as file:
        return from_named(
            str(path),
            names_in(path, file),
            lambda name: read_rows(path, file, name),
            columns,
            stack=stack,
            num_actions=num_actions,
            ordered=ordered,
            ends=ends,
        )


@contextmanager
def open_hdf5(path: Path, within: Path | None = None) -> Iterator[h5py.File]:
    """An HDF5 file whose numbers all lie in it; what reaches out, or was never written, is refused."""
    try:
        file = h5py.File(plain_file(path, within), "r")
        wrong = file.visititems_links(lambda name, link: _outside(file, name, link))
    except (OSError, RuntimeError, KeyError, TypeError, UnicodeDecodeError, SystemError) as error:
        # SystemError: what _outside raised on a damaged file, as h5py passes it on
        raise BadInput(f"{path} is no HDF5 file that can be read ({error}).") from error
    with file:
        if wrong is not None:
            raise BadInput(f"{path}: {wrong} Nothing was read.")
        yield file


def _outside(file: h5py.File, name: str, link: object) -> str | None:
    """What is wrong with one link of a file, None if nothing; h5py cannot pass errors on from its visits.

    Soft links stay inside a file; a link of a kind that HDF5 does not define raises in h5py.
    """
    if isinstance(link, h5py.ExternalLink):
        return f"{name!r} is a link into another file, {link.filename}."
    item = file[name] if isinstance(link, h5py.HardLink) else None
    if not isinstance(item, h5py.Dataset):
        return None
    if item.is_virtual or item.external:
        return f"{name!r} keeps its numbers in other files; copy them into this one."
    missing = _unwritten(item)
    return f"{name!r} says it has shape {item.shape}, but {missing} never written." if missing else None


def _unwritten(item: h5py.Dataset) -> str:
    """What of a dataset is not in the file, in words; HDF5 would make it up (zeros)."""
    if not item.size or item.id.get_create_plist().get_layout() == h5py.h5d.COMPACT:
        return ""
    if item.chunks is None:
        return "" if item.id.get_storage_size() >= item.size * item.dtype.itemsize else "its numbers were"
    pairs = zip(item.shape, item.chunks, strict=True)
    lacking = prod(-(-size // chunk) for size, chunk in pairs) - item.id.get_num_chunks()
    return f"{lacking} of its chunks were" if lacking > 0 else ""


def names_in(path: Path, file: h5py.File) -> list[str]:
    """Full names of all datasets in the file."""
    names: list[str] = []
    try:
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    except (OSError, RuntimeError, KeyError) as error:  # objects of a kind that HDF5 does not define
        raise BadInput(f"{path} is damaged: {error}.") from error
    return names


def read_rows(path: Path, file: h5py.File, name: str, rows: slice | tuple[()] = ()) -> Array:
    """One array of the file, or these rows of it."""
    item = file[name]
    if item.dtype.kind == "O" and h5py.check_string_dtype(item.dtype) is None:
        raise BadInput(f"{path}: {name} holds {item.dtype}; expected numbers.")
    try:
        value = item.asstr()[rows] if item.dtype.kind == "O" else item[rows]
    except (OSError, UnicodeDecodeError, MemoryError, TypeError, ValueError) as error:
        raise BadInput(f"{path}: {name} cannot be read ({error}).") from error
    return np.asarray(value)
