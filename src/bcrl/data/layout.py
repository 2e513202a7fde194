"""How the columns of a table became one array of observations, so that rows can be shown as a table again.

A policy that was made for the table (a scikit-learn pipeline, a function of a DataFrame) is asked with the
table's own columns: words are words again, and what was missing is missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
FrameKind = Literal["pandas", "polars", "pyarrow"]


@dataclass(frozen=True)
class Column:
    """One column of the table.

    Attributes:
        name: in the table.
        first: its first place in the array.
        width: places in the array: one for numbers and dates, one for each label of a column of words.
        labels: the words, in order; none for numbers.
        gap: place of the column that is 1 where the value was missing; None where none was.
        kind: numpy's letter for the numbers as they were: "f", "i", "u", "b"; "U" for words, "M" for dates.
        origin: for dates, what day 0 of the array is, in days since 1970.
    """

    name: str
    first: int
    width: int = 1
    labels: tuple[str, ...] = ()
    gap: int | None = None
    kind: str = "f"
    origin: float = 0.0

    def values(self, rows: Floats, gaps: bool) -> NDArray[Any]:
        """The column as it was at these rows; without `gaps`, as it was filled in."""
        part = rows[:, self.first : self.first + self.width]
        missing = np.zeros(len(rows), dtype=bool)
        if gaps and self.gap is not None:
            missing = rows[:, self.gap] > 0.5
        if self.kind == "U":
            words: NDArray[Any] = np.asarray(self.labels, dtype=object)[part.argmax(axis=1)]
            words[missing] = None
            return words
        if self.kind == "M":
            days = part[:, 0] + self.origin
            dates = np.round(days * 86_400e6).astype("int64").astype("datetime64[us]")
            dates[missing] = np.datetime64("NaT")
            return dates
        numbers = part[:, 0].copy()
        if missing.any():
            numbers[missing] = np.nan
            return numbers
        whole = self.gap is None and self.kind in "iub"
        return numbers.astype({"b": np.bool_}.get(self.kind, np.int64)) if whole else numbers


@dataclass(frozen=True)
class Layout:
    """The table's columns that are observations.

    Attributes:
        columns: in the table's order.
        kind: whose tables the user has; what a function of a table is called with.
    """

    columns: tuple[Column, ...]
    kind: FrameKind

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def gapped(self) -> bool:
        """Whether any value was missing."""
        return any(column.gap is not None for column in self.columns)

    def frame(
        self,
        rows: NDArray[Any],
        *,
        gaps: bool = True,
        names: Sequence[str] | None = None,
        kind: FrameKind | None = None,
    ) -> Any:  # noqa: ANN401 - a table of the user's own library
        """Observations as a table.

        Args:
            rows: the array, shape (n, width).
            gaps: leave missing what was missing; else as it was filled in.
            names: these columns in this order; None for all.
            kind: of table; None for the kind that the data came as.
        """
        known = {column.name: column for column in self.columns}
        wide = np.asarray(rows, dtype=np.float64)
        parts = {name: known[name].values(wide, gaps) for name in names or self.names}
        library = import_module(kind or self.kind)
        if (kind or self.kind) != "pyarrow":
            return library.DataFrame(parts)
        return library.table({name: library.array(part, from_pandas=True) for name, part in parts.items()})


def frame_kind(source: object) -> FrameKind:
    """Whose table an object is; for files, pandas where it is installed."""
    module = type(source).__module__.partition(".")[0]
    if module == "polars":
        return "polars"
    if module == "pyarrow":
        return "pyarrow"
    return "pandas" if module == "pandas" or find_spec("pandas") is not None else "pyarrow"
