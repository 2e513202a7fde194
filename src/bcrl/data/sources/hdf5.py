"""D4RL-style HDF5: observations, actions, rewards, terminals, timeouts, and often next_observations, laid end
to end.

`timeouts` are our `truncated`. Without `next_observations` the last row of a timed-out episode is dropped.
The logging probabilities that some D4RL files hold are taken when asked for: columns={"log_prob":
"infos/action_log_probs"}.
"""

from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np

from bcrl.data.dataset import Array, Dataset, Ends
from bcrl.data.sources.columns import from_named
from bcrl.errors import BadInput


def load_hdf5(
    path: Path,
    columns: Mapping[str, str] | None = None,
    stack: int = 1,
    num_actions: int | None = None,
    ordered: bool = True,
    ends: Ends | None = None,
) -> Dataset:
    """Read one HDF5 file; see `columns.from_named` for the options."""
    try:
        with h5py.File(path, "r") as file:
            return from_named(
                str(path),
                _names(file),
                lambda name: _read(path, file, name),
                columns,
                stack=stack,
                num_actions=num_actions,
                ordered=ordered,
                ends=ends,
            )
    except OSError as error:
        raise BadInput(f"{path} is no HDF5 file ({error}).") from error


def _names(file: h5py.File) -> list[str]:
    """Full names of all datasets in the file itself; links that lead out of it are not followed."""
    names: list[str] = []
    file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    return names


def _read(path: Path, file: h5py.File, name: str) -> Array:
    item = file[name]
    if item.dtype.kind == "O" and h5py.check_string_dtype(item.dtype) is None:
        raise BadInput(f"{path}: {name} holds {item.dtype}; expected numbers.")
    try:
        value = item.asstr()[()] if item.dtype.kind == "O" else item[()]
    except (OSError, UnicodeDecodeError, MemoryError) as error:
        raise BadInput(f"{path}: {name} cannot be read ({error}).") from error
    return np.asarray(value)
