"""A table's columns as numbers: words one column a label, dates in days, gaps filled in as the user says."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bcrl.data.dataset import all_finite
from bcrl.data.layout import Column
from bcrl.data.sources.guesses import MOST_LABELS
from bcrl.errors import BadInput

Missing = Literal["refuse", "forward", "mean"]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Known:
    """What a whole column is like, where only a part of it is read at a time.

    Attributes:
        rows: of the column.
        gaps: rows where nothing is there.
        first_gap: the first of them.
        labels: its words, in order.
        origin: for dates, what day 0 is.
        mean: of what is there, one number for each place of the column.
    """

    rows: int
    gaps: int
    first_gap: int
    labels: tuple[str, ...]
    origin: float
    mean: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Cells:
    """One column: its values as an array of numbers (n, width), where nothing was there, and what it was.

    With `known` the rows are a part of the column.
    """

    name: str
    values: Floats
    missing: Flags
    labels: tuple[str, ...] = ()
    kind: str = "f"
    origin: float = 0.0
    known: Known | None = None

    @property
    def rows(self) -> int:
        return len(self.missing) if self.known is None else self.known.rows

    @property
    def gaps(self) -> int:
        return int(self.missing.sum()) if self.known is None else self.known.gaps

    @property
    def first_gap(self) -> int:
        return int(self.missing.argmax()) if self.known is None else self.known.first_gap

    def filled(self, how: Missing, begins: Flags) -> Floats:
        """The values with their gaps filled in.

        Args:
            how: "forward" takes the episode's last value before; where there is none, and for "mean", the
                column's mean.
            begins: rows that begin an episode.
        """
        if not self.missing.any():
            return self.values
        usual = self.values[~self.missing].mean(axis=0) if self.known is None else np.array(self.known.mean)
        full = np.where(self.missing[:, None], usual, self.values)
        if how == "mean":
            return full
        rows = np.arange(len(full))
        first = np.maximum.accumulate(np.where(begins, rows, 0))
        last = np.maximum.accumulate(np.where(self.missing, -1, rows))
        return np.asarray(full[np.where(last >= first, last, rows)])

    def column(self, first: int) -> Column:
        """Where the column lies in the array of all observations, its mark of gaps right after it."""
        width = self.values.shape[1]
        gap = first + width if self.gaps else None
        return Column(self.name, first, width, self.labels, gap, self.kind, self.origin)


def cells(name: str, column: Any, known: Known | None = None, *, part: bool = False) -> Cells:  # noqa: ANN401
    """A column of numbers, dates or words as numbers; a `BadInput` names the column that is neither.

    Args:
        name: of the column.
        column: its rows, as pyarrow has them.
        known: what the whole column is like, if these rows are a part of it.
        part: the rows are a part of a column of which nothing is known yet: they may all be empty.
    """
    kind = column.type
    part = part or known is not None
    if is_text(kind):
        return _words(name, column, known, part)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        stamps = column.cast(pa.timestamp("us", tz=getattr(kind, "tz", None))).cast(pa.int64())
        missing = _nulls(column)
        days = pc.fill_null(stamps, 0).to_numpy().astype(np.float64) / 86_400e6
        origin = float(np.floor(days[~missing].min())) if not missing.all() else 0.0
        origin = origin if known is None else known.origin
        return Cells(name, np.where(missing, 0.0, days - origin)[:, None], missing, (), "M", origin, known)
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
    if column.null_count:
        column = pc.fill_null(column, False if pa.types.is_boolean(kind) else 0)
    values = column.to_numpy()
    if values.dtype.kind == "f" and not all_finite(values):
        missing = missing | np.isnan(values)
    if missing.all() and (not part or (known is not None and known.gaps == known.rows)):
        raise BadInput(f"column {name!r} is empty in every row; leave it out")
    clean = values.astype(np.float64, copy=False)
    if missing.any():
        clean = np.where(missing, 0.0, clean)
    return Cells(name, clean[:, None], missing, (), values.dtype.kind, 0.0, known)


def is_text(kind: Any) -> bool:  # noqa: ANN401 - pyarrow has no types
    """Whether a column holds words; pandas' and polars' categories are words too."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def word_codes(
    column: Any,  # noqa: ANN401 - pyarrow has no types
    known: tuple[str, ...] | None = None,
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Words as numbers from 0 (-1 where none is), and the words: in a category's own order, else A to Z.

    `known`: the words of the whole column, of which this is a part.
    """
    values = column.to_pylist()
    order: Sequence[str]
    if known is not None:
        order = known
    elif pa.types.is_dictionary(column.type):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        order = list(dict.fromkeys(word for chunk in chunks for word in chunk.dictionary.to_pylist()))
    else:
        order = sorted({value for value in values if value is not None})
    number = {word: code for code, word in enumerate(order)}
    codes = np.asarray([-1 if value is None else number[value] for value in values], dtype=np.int64)
    return codes, tuple(order)


def _words(name: str, column: Any, known: Known | None, part: bool) -> Cells:  # noqa: ANN401 - pyarrow has no types
    codes, labels = word_codes(column, None if known is None else known.labels)
    if not labels and not (part and known is None):
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
    return Cells(name, values, ~there, labels, "U", 0.0, known)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _nulls(column: Any) -> Flags:  # noqa: ANN401 - pyarrow has no types
    if not column.null_count:
        return np.zeros(len(column), dtype=np.bool_)
    return np.asarray(column.is_null().to_numpy(), dtype=np.bool_)
