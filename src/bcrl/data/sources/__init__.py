"""Logged data as people have it -> `Dataset`. `load_dataset` looks at the path and picks the reader.

| given                        | reader                                                                  |
|------------------------------|-------------------------------------------------------------------------|
| `logs.npz`                   | plain arrays, one row per transition, or what `save_npz` wrote          |
| folder with dataset.json     | bcrl's own, memory-mapped                                               |
| `logs.hdf5`, `logs.h5`       | D4RL: observations, actions, rewards, terminals, timeouts               |
| `minari:ID`, Minari folder   | Minari, from the local store or a path                                  |
| folder with meta/info.json   | LeRobot, format v3.0                                                    |
| folder of *.npz              | DrQ-v2 episodes                                                         |
| `logs.csv`, `logs.parquet`   | tables, with a column map                                               |
| folder of *.parquet          | one table in many files; folders called NAME=VALUE are columns          |
| a DataFrame                  | pandas, polars or pyarrow, in memory, as a table                        |

Formats that can run code when they are read (pickles) have no reader.
"""

import inspect
import os
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from bcrl.data.dataset import Dataset
from bcrl.errors import BadInput, Guess, did_you_mean
from bcrl.opening import plain_file

_BY_SUFFIX = {
    ".npz": ("npz", "load_npz"),
    ".hdf5": ("hdf5", "load_hdf5"),
    ".h5": ("hdf5", "load_hdf5"),
    ".csv": ("tables", "load_table"),
    ".parquet": ("tables", "load_table"),
}
_CAN_RUN_CODE = {".pkl", ".pickle", ".pt", ".pth", ".joblib", ".npy", ".dill", ".cloudpickle"}


def load_dataset(path: Any, **options: Any) -> Dataset:  # noqa: ANN401 - each reader checks its own
    """Read logged data. What a reader guesses or fills in is said as a warning, and kept in `Dataset.notes`.

    Args:
        path: a file, a folder, `minari:ID`, or a pandas, polars or pyarrow table.
        **options: what the reader of this kind takes: `stack`, `num_actions`, `columns`, `missing`, ...
            (docs/data.md).
    """
    dataset = _load(path, options)
    if dataset.notes:
        warnings.warn(" ".join(dataset.notes), Guess, stacklevel=2)
    return dataset


def _load(path: Any, options: dict[str, Any]) -> Dataset:  # noqa: ANN401
    if not isinstance(path, str | Path):
        if not any(hasattr(path, name) for name in ("__arrow_c_stream__", "__dataframe__")):
            raise BadInput(
                f"{type(path).__name__} is no data that bcrl reads; expected a path, a pandas, polars or "
                "pyarrow table, or arrays given to Dataset.from_arrays."
            )
        return _call("tables", "load_table", path, options)
    module, name, place = reader_of(path)
    return _call(module, name, place, options)


def reader_of(path: str | Path) -> tuple[str, str, Any]:
    """The module and the function that read this path, and what they take."""
    text = str(path)
    if text.startswith("minari:"):
        return "minari", "load_minari", text.removeprefix("minari:")
    place = Path(os.path.expanduser(path))
    if not os.path.lexists(place):
        near = [p.name for p in place.parent.iterdir()] if os.path.isdir(place.parent) else []
        hint = did_you_mean(place.name, near) if near and len(near) < 50 else "Check the path."
        raise BadInput(f"{place} does not exist. {hint}")
    if os.path.isdir(place):
        return *_reader_of_folder(place), place
    if place.suffix.lower() in _CAN_RUN_CODE:
        raise BadInput(
            f"{place}: files of kind {place.suffix} can run code when read, and bcrl does not open them. "
            "Write the arrays with np.savez, or pass them to Dataset.from_arrays."
        )
    if place.suffix.lower() not in _BY_SUFFIX:
        raise BadInput(
            f"{place}: no reader for {place.suffix or 'files without a suffix'}. Known: "
            f"{', '.join(_BY_SUFFIX)}."
        )
    plain_file(place)
    return *_BY_SUFFIX[place.suffix.lower()], place


def _reader_of_folder(folder: Path) -> tuple[str, str]:
    if any(os.path.lexists(folder / name) for name in ("dataset.json", "progress.json")):
        return "folder", "load_folder"
    if any(os.path.lexists(folder / name) for name in ("metadata.json", "data/metadata.json")):
        return "minari", "load_minari"
    if os.path.lexists(folder / "meta" / "info.json"):
        return "lerobot", "load_lerobot"
    if any(folder.glob("*.npz")):
        return "drq", "load_drq"
    if next(folder.rglob("*.parquet"), None) is not None:
        return "tables", "load_table"
    raise BadInput(
        f"{folder} is no dataset: expected dataset.json (bcrl), metadata.json (Minari), meta/info.json "
        "(LeRobot), *.npz episodes (DrQ-v2) or *.parquet tables."
    )


def _call(module: str, name: str, place: Any, options: dict[str, Any]) -> Dataset:  # noqa: ANN401
    reader: Callable[..., Dataset] = getattr(import_module(f"bcrl.data.sources.{module}"), name)
    known = list(inspect.signature(reader).parameters)[1:]
    for option in options:
        if option not in known:
            hint = did_you_mean(option, known)
            raise BadInput(f"{_shown(place)}: the option {option!r} is unknown for this kind. {hint}")
    return reader(place, **options)


def _shown(place: object) -> str:
    return str(place) if isinstance(place, str | Path) else f"a {type(place).__name__}"
