"""CSV and Parquet tables, one row per transition, with a map from our words to column names.

    columns = {"observation": ["age", "pressure", "dose_before"], "action": ["dose"], "reward": "outcome",
               "episode": "patient_visit", "terminated": "died", "cluster": "patient"}

Without a map, columns are found by name: `observation` or `observation_*`, `action` or `action_*`, `reward`,
`terminated`, `truncated`, `episode`, `log_prob`, `cluster`, `behaviour`, `next_observation_*`. Rows of an
episode follow each other in time.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from bcrl.data.build.arrays import LoggedArrays, from_arrays
from bcrl.data.dataset import LABELS, Array, Dataset, Ends
from bcrl.errors import BadInput, did_you_mean

_VECTORS = {"observation": "observations", "action": "actions", "next_observation": "next_observations"}
_COLUMNS = {"reward": "rewards", "terminated": "terminated", "truncated": "truncated"}
_COLUMNS |= {"episode": "episode", "log_prob": "log_prob", "cluster": "cluster", "behaviour": "behaviour"}
Columns = Mapping[str, Any]


def load_table(
    path: Path,
    columns: Columns | None = None,
    num_actions: int | None = None,
    cluster: str | None = None,
    ends: Ends | None = None,
) -> Dataset:
    """Read one table.

    Args:
        path: a .csv or .parquet file.
        columns: our word -> column name, or a list of them for `observation`, `action`, `next_observation`.
        num_actions: number of discrete actions; None takes the largest one seen plus one.
        cluster: the column that says what is independent; the same as columns["cluster"].
        ends: as in `Dataset.from_arrays`.
    """
    table = _read(path)
    names = _names(path, table)
    wanted = dict(_by_name(names) if columns is None else columns)
    if cluster is not None:
        wanted["cluster"] = cluster
    _check(path, wanted, names)
    given: dict[str, Any] = {}
    for word, argument in _VECTORS.items():
        if word in wanted:
            names = [wanted[word]] if isinstance(wanted[word], str) else list(wanted[word])
            parts = [_numbers(path, table, name) for name in names]
            thin = word == "action" and len(parts) == 1
            given[argument] = parts[0] if thin else np.stack([p.astype(np.float64) for p in parts], axis=1)
    if given["actions"].ndim == 1 and given["actions"].dtype.kind == "f" and num_actions is None:
        given["actions"] = given["actions"][:, None]
    for word, argument in _COLUMNS.items():
        if word in wanted:
            labelled = word in ("episode", *LABELS)
            given[argument] = (_labels if labelled else _numbers)(path, table, str(wanted[word]))
    if "terminated" not in given:
        given["terminated"] = np.zeros(table.num_rows, dtype=np.bool_)
    return from_arrays(LoggedArrays(**given, num_actions=num_actions, ends=ends, source=str(path)))


def _read(path: Path) -> Any:  # noqa: ANN401 - pyarrow has no types
    try:
        if path.suffix.lower() == ".csv":
            table = pyarrow.csv.read_csv(path)
        else:
            table = pyarrow.parquet.read_table(path, partitioning=None)  # folder names are no columns
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read as a table ({error}).") from error
    if table.num_rows == 0:
        raise BadInput(f"{path} has no rows; expected one per transition.")
    return table


def _names(path: Path, table: Any) -> list[str]:  # noqa: ANN401 - pyarrow has no types
    try:
        return list(table.column_names)
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 ({error}); save the table as UTF-8.") from None


def _by_name(names: Sequence[str]) -> dict[str, Any]:
    """Our words, found among the column names."""
    found: dict[str, Any] = {}
    for word in _VECTORS:
        parts = [name for name in names if name == word or re.fullmatch(rf"{word}_.+", name)]
        if parts:
            found[word] = sorted(parts, key=_numbered)
    return found | {word: word for word in _COLUMNS if word in names}


def _numbered(name: str) -> tuple[str, int, str]:
    """observation_2 comes before observation_10."""
    stem, _, tail = name.rpartition("_")
    return (stem, int(tail), "") if tail.isdigit() else (stem, -1, tail)


def _check(path: Path, wanted: Columns, names: Sequence[str]) -> None:
    known = [*_VECTORS, *_COLUMNS]
    for word, value in wanted.items():
        if word not in known:
            raise BadInput(f"columns has the key {word!r}. {did_you_mean(str(word), known)}")
        if not isinstance(value, str | list | tuple) or (word not in _VECTORS and not isinstance(value, str)):
            raise BadInput(f"columns[{word!r}] is {value!r}; expected the name of a column.")
        for name in [value] if isinstance(value, str) else value:
            if name not in names:
                raise BadInput(
                    f"{path} has no column {name!r} (columns[{word!r}]). {did_you_mean(str(name), names)}"
                )
            if names.count(name) > 1:
                raise BadInput(
                    f"{path} has the column {name!r} twice; which one is meant? Rename one of them."
                )
    for word in ("observation", "action", "reward"):
        if word not in wanted or not wanted[word]:
            raise BadInput(
                f"{path}: no column for {word!r} among {', '.join(names)}. Pass columns={{{word!r}: ...}}."
            )
    if not {"terminated", "truncated", "episode"} & set(wanted):
        raise BadInput(
            f"{path}: nothing says where episodes end. Pass columns with 'episode', 'terminated' or "
            "'truncated'."
        )


def _numbers(path: Path, table: Any, name: str) -> Array:  # noqa: ANN401 - pyarrow has no types
    column = table[name]
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise BadInput(
            f"{path}: column {name!r} is empty at row {row}; fill it in or leave that episode out."
        )
    values: Array = column.to_numpy()
    if values.dtype.kind not in "biuf":
        raise BadInput(f"{path}: column {name!r} holds {column.type}; expected numbers.")
    return values


def _labels(path: Path, table: Any, name: str) -> Array:  # noqa: ANN401 - pyarrow has no types
    column = table[name]
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise BadInput(f"{path}: column {name!r} is empty at row {row}; every row needs its label.")
    if pa.types.is_binary(column.type):
        raise BadInput(f"{path}: column {name!r} is not UTF-8; save the table as UTF-8.")
    values: Array = column.to_numpy()
    return values if values.dtype.kind in "biuf" else np.asarray([str(v) for v in column.to_pylist()])
