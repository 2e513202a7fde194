"""A .csv or .parquet file, or a folder of .parquet files, read a batch of rows at a time."""

import io
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset

from bcrl.data.sources.tables import CONVERT, parquet_folder
from bcrl.errors import BadInput

BATCH = 1 << 16  # rows
_CSV_BLOCK = 1 << 23  # bytes


class TableStream:
    """Looks like a pyarrow table to those who ask for names, types and single columns.

    Args:
        path: the file or the folder.
        thorough: for .csv, look at every row before the columns' types are settled, not at the first ones.
    """

    def __init__(self, path: Path, thorough: bool = False) -> None:
        self.path, self.csv = path, path.suffix.lower() == ".csv" and path.is_file()
        self.thorough, self.done = thorough, 0

    @cached_property
    def schema(self) -> Any:  # noqa: ANN401 - pyarrow has no types
        with self._told():
            if not self.csv:
                return self._dataset.schema
            if self.thorough:
                return _settled(self.path)
            with self._open_csv({}) as reader:
                return reader.schema

    @property
    def column_names(self) -> list[str]:
        return list(self.schema.names)

    @cached_property
    def num_rows(self) -> int:
        if not self.csv:
            return int(self._dataset.count_rows())
        return sum(batch.num_rows for batch in self.batches(self.column_names[:1]))

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - pyarrow has no types
        """One whole column: only guesses of names need it."""
        return pa.Table.from_batches(self.batches([name]), self._part([name]))[name]

    @property
    def size(self) -> int:
        """Bytes to read of a .csv file, else rows; `done` counts up to it."""
        return self.path.stat().st_size if self.csv else self.num_rows

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """The rows in order, in batches of some ten thousand."""
        self.done = 0
        with self._told():
            yield from self._csv_batches(columns) if self.csv else self._parquet_batches(columns)

    def _csv_batches(self, columns: Sequence[str]) -> Iterator[Any]:
        types = {name: self.schema.field(name).type for name in columns}
        with self._open_csv({"include_columns": list(columns), "column_types": types}) as reader:
            for batch in reader:
                self.done += int(_CSV_BLOCK)
                yield batch

    def _parquet_batches(self, columns: Sequence[str]) -> Iterator[Any]:
        # A row group at a time: what pyarrow reads ahead of a slow reader would fill the memory.
        for file in self._dataset.get_fragments():
            for group in file.split_by_row_group(schema=self.schema):
                for batch in group.to_batches(
                    self.schema, columns=list(columns), batch_size=BATCH, use_threads=False
                ):
                    self.done += batch.num_rows
                    yield batch

    @cached_property
    def _dataset(self) -> Any:  # noqa: ANN401 - pyarrow has no types
        if self.path.is_dir():
            return parquet_folder(self.path)
        return pyarrow.dataset.dataset(str(self.path), format="parquet")

    def _open_csv(self, options: dict[str, Any]) -> Any:  # noqa: ANN401 - pyarrow has no types
        return pyarrow.csv.open_csv(
            self.path,
            read_options=pyarrow.csv.ReadOptions(block_size=_CSV_BLOCK, use_threads=False),
            convert_options=pyarrow.csv.ConvertOptions(**CONVERT, **options),
        )

    def _part(self, columns: Sequence[str]) -> Any:  # noqa: ANN401 - pyarrow has no types
        return pa.schema([self.schema.field(name) for name in columns])

    def _told(self) -> "_Told":
        return _Told(self.path)


class _Told:
    """What pyarrow refuses to read is told in one line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: object) -> None:  # noqa: ANN401
        if isinstance(error, BadInput):
            return
        if isinstance(error, pa.ArrowException | OSError | ValueError):
            raise Unreadable(f"{self.path} cannot be read as a table ({error}).") from error


class Unreadable(BadInput):
    """pyarrow could not read on; for a .csv file, perhaps because later rows are of another type."""


def _settled(path: Path) -> Any:  # noqa: ANN401 - pyarrow has no types
    """The types of a .csv file's columns that fit all of its rows."""
    found: Any = None
    with path.open("rb") as file:
        header = file.readline()
        while block := file.read(_CSV_BLOCK):
            block += file.readline()
            options = pyarrow.csv.ConvertOptions(**CONVERT)
            reading = pyarrow.csv.ReadOptions(use_threads=False, block_size=2 * _CSV_BLOCK)
            schema = pyarrow.csv.read_csv(io.BytesIO(header + block), reading, convert_options=options).schema
            found = schema if found is None else _joined(found, schema)
    if found is None:
        raise BadInput(f"{path} has no rows; expected one per transition.")
    return found


def _joined(one: Any, other: Any) -> Any:  # noqa: ANN401 - pyarrow has no types
    pairs = zip(one, other, strict=True)
    return pa.schema([pa.field(a.name, _common(a.type, b.type)) for a, b in pairs])


def _common(one: Any, other: Any) -> Any:  # noqa: ANN401 - pyarrow has no types
    """The narrowest type that holds both, as pyarrow's reader of .csv files would have it."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    both = (one, other)
    if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in both):
        return pa.float64()
    if all(pa.types.is_date(kind) or pa.types.is_timestamp(kind) for kind in both):
        return max((kind for kind in both if pa.types.is_timestamp(kind)), key=str)
    return pa.string()
