"""A table's columns as numbers: words one column a label, dates in days, gaps filled in as the user says."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bcrl.data.layout import Column
from bcrl.data.sources.guesses import MOST_LABELS
from bcrl.errors import BadInput

Missing = Literal["refuse", "forward", "mean"]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Cells:
    """One column: its values as an array of numbers (n, width), where nothing was there, and what it was."""

    name: str
    values: Floats
    missing: Flags
    labels: tuple[str, ...] = ()
    kind: str = "f"
    origin: float = 0.0

    @property
    def gaps(self) -> int:
        return int(self.missing.sum())

    def filled(self, how: Missing, begins: Flags) -> Floats:
        """The values with their gaps filled in.

        Args:
            how: "forward" takes the episode's last value before; where there is none, and for "mean", the
                column's mean.
            begins: rows that begin an episode.
        """
        if not self.missing.any():
            return self.values
        there = self.values[~self.missing]
        full = np.where(self.missing[:, None], there.mean(axis=0), self.values)
        if how == "mean":
            return full
        rows = np.arange(len(full))
        first = np.maximum.accumulate(np.where(begins, rows, 0))
        last = np.maximum.accumulate(np.where(self.missing, -1, rows))
        return np.asarray(full[np.where(last >= first, last, rows)])

    def column(self, first: int) -> Column:
        """Where the column lies in the array of all observations, its mark of gaps right after it."""
        width = self.values.shape[1]
        gap = first + width if self.missing.any() else None
        return Column(self.name, first, width, self.labels, gap, self.kind, self.origin)


def cells(name: str, column: Any) -> Cells:  # noqa: ANN401 - pyarrow has no types
    """A column of numbers, dates or words as numbers; a `BadInput` names the column that is neither."""
    kind = column.type
    if is_text(kind):
        return _words(name, column)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        stamps = column.cast(pa.timestamp("us", tz=getattr(kind, "tz", None))).cast(pa.int64())
        missing = _nulls(column)
        days = pc.fill_null(stamps, 0).to_numpy().astype(np.float64) / 86_400e6
        origin = float(np.floor(days[~missing].min())) if not missing.all() else 0.0
        return Cells(name, np.where(missing, 0.0, days - origin)[:, None], missing, (), "M", origin)
    if pa.types.is_duration(kind):
        column = pc.divide(column.cast(pa.duration("us")).cast(pa.int64()).cast(pa.float64()), 86_400e6)
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif pa.types.is_null(kind):
        raise BadInput(f"column {name!r} is empty in every row; leave it out")
    elif not (pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise BadInput(
            f"column {name!r} holds {kind}; expected one number, word or date a row (make a list one "
            "column for each of its numbers)"
        )
    missing = _nulls(column)
    values = pc.fill_null(column, False if pa.types.is_boolean(kind) else 0).to_numpy()
    if values.dtype.kind == "f":
        missing = missing | np.isnan(values)
    if missing.all():
        raise BadInput(f"column {name!r} is empty in every row; leave it out")
    clean = np.where(missing, 0.0, values.astype(np.float64))
    return Cells(name, clean[:, None], missing, (), values.dtype.kind)


def is_text(kind: Any) -> bool:  # noqa: ANN401 - pyarrow has no types
    """Whether a column holds words; pandas' and polars' categories are words too."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def word_codes(column: Any) -> tuple[NDArray[np.int64], tuple[str, ...]]:  # noqa: ANN401 - pyarrow has no types
    """Words as numbers from 0 (-1 where none is), and the words: in a category's own order, else A to Z."""
    values = column.to_pylist()
    if pa.types.is_dictionary(column.type):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        order = list(dict.fromkeys(word for chunk in chunks for word in chunk.dictionary.to_pylist()))
    else:
        order = sorted({value for value in values if value is not None})
    number = {word: code for code, word in enumerate(order)}
    codes = np.asarray([-1 if value is None else number[value] for value in values], dtype=np.int64)
    return codes, tuple(order)


def _words(name: str, column: Any) -> Cells:  # noqa: ANN401 - pyarrow has no types
    codes, labels = word_codes(column)
    if not labels:
        raise BadInput(f"column {name!r} is empty in every row; leave it out")
    odd = [label for label in labels if not _is_number(label)]
    if odd and len(odd) < len(labels):
        row = int(np.argmax(np.isin(codes, [labels.index(label) for label in odd])))
        raise BadInput(f"column {name!r} has {odd[0]!r} at row {row} among numbers; expected numbers alone")
    if len(labels) > MOST_LABELS:
        raise BadInput(
            f"column {name!r} holds {len(labels)} different words; at most {MOST_LABELS} become "
            "observations. Group rare ones, or leave the column out"
        )
    values = np.zeros((len(codes), len(labels)))
    there = codes >= 0
    values[np.flatnonzero(there), codes[there]] = 1.0
    return Cells(name, values, ~there, labels, "U")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _nulls(column: Any) -> Flags:  # noqa: ANN401 - pyarrow has no types
    return np.asarray(column.is_null().to_numpy(), dtype=np.bool_)
