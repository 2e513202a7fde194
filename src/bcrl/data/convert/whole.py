"""A table's rows as blocks of whole episodes: cut where an episode ends, or, where episodes are interleaved,
dealt out on disk first (each episode's rows go to one file of many) so that every file holds whole episodes.
"""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bcrl.data.convert.streams import BATCH, TableStream
from bcrl.data.sources.tables import listed
from bcrl.errors import BadInput
from bcrl.writing import make_folder

_MOST_FILES = 400  # open at the same time
Columns = Mapping[str, Any]


class Interleaved(Exception):
    """An episode's rows do not stand together, and a step column says how to put them in order."""


def columns_of(wanted: Columns) -> list[str]:
    """Every column that is read, once."""
    return list(dict.fromkeys(name for names in wanted.values() for name in listed(names)))


def blocks_in_order(stream: TableStream, wanted: Columns) -> Iterator[Any]:
    """Tables of whole episodes, one after another, of some ten thousand rows."""
    seen: set[Any] = set()
    held: list[Any] = []
    count, enough, begun = 0, BATCH, 0
    for batch in stream.batches(columns_of(wanted)):
        held.append(pa.Table.from_batches([batch]))
        count += batch.num_rows
        if count < enough:
            continue
        table = pa.concat_tables(held)
        cut = _last_end(table, wanted)
        held, enough = [table.slice(cut)], BATCH if cut else 2 * count  # a long episode: look again later
        count -= cut
        if cut:
            _require_together(table.slice(0, cut), wanted, seen, begun)
            yield table.slice(0, cut)
            begun += cut
    if count:
        table = pa.concat_tables(held)
        _require_together(table, wanted, seen, begun)
        yield table


def _last_end(table: Any, wanted: Columns) -> int:  # noqa: ANN401 - pyarrow has no types
    """Rows up to the last one that surely ends an episode."""
    if "episode" in wanted:
        starts = np.flatnonzero(_changes(table[wanted["episode"]]))
        return int(starts[-1]) if len(starts) else 0
    ends = _marked(table, wanted)
    if ends is None:
        return int(table.num_rows)  # the reader refuses it
    return int(ends[-1]) + 1 if len(ends) else 0


def episodes_in(table: Any, wanted: Columns) -> int:  # noqa: ANN401 - pyarrow has no types
    """Episodes of a block of whole ones."""
    if "episode" in wanted:
        return 1 + int(_changes(table[wanted["episode"]]).sum())
    ends = _marked(table, wanted)
    return 0 if ends is None else len(ends)


def _marked(table: Any, wanted: Columns) -> NDArray[np.int64] | None:  # noqa: ANN401 - pyarrow has no types
    """Rows that a flag marks; None where the flags are none."""
    marked = np.zeros(table.num_rows, dtype=np.bool_)
    for word in ("terminated", "truncated"):
        if word in wanted:
            kind = table[wanted[word]].type
            if not (pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
                return None
            flags = pc.fill_null(table[wanted[word]].cast(pa.float64()), 0.0).to_numpy()
            marked |= flags != 0.0
    return np.flatnonzero(marked)


def _changes(column: Any) -> NDArray[np.bool_]:  # noqa: ANN401 - pyarrow has no types
    """Rows whose label is another than the row's before; the first row is none."""
    count = len(column)
    unequal = pc.fill_null(pc.not_equal(column.slice(1), column.slice(0, count - 1)), True)
    return np.concatenate([[False], unequal.to_numpy().astype(np.bool_)])


def _require_together(table: Any, wanted: Columns, seen: set[Any], begun: int) -> None:  # noqa: ANN401
    """Each episode's rows stand together, in this block and in the whole table."""
    if "episode" not in wanted:
        return
    column = table[wanted["episode"]]
    starts = np.concatenate([[0], np.flatnonzero(_changes(column))])
    for row, label in zip(starts, column.take(pa.array(starts)).to_pylist(), strict=True):
        if label not in seen:
            seen.add(label)
            continue
        if "step" in wanted:
            raise Interleaved
        raise BadInput(
            f"episode {label} begins again at row {begun + int(row)}; sort the rows by episode and time "
            "first."
        )


def blocks_dealt_out(stream: TableStream, wanted: Columns, room: Path) -> Iterator[Any]:
    """Tables of whole episodes, in the order in which episodes begin, by way of files in `room`."""
    done = room / "dealt"
    if not done.exists():
        shutil.rmtree(room, ignore_errors=True)
        make_folder(room)
        _deal(stream, wanted, room)
        done.touch()
    for path in sorted(room.glob("*.arrow")):
        with pa.memory_map(str(path)) as file:
            yield pa.ipc.open_stream(file).read_all()


def _deal(stream: TableStream, wanted: Columns, room: Path) -> None:
    number, sizes = _episodes(stream, wanted["episode"])
    ends = np.cumsum(sizes)
    file_of = (ends - 1) // max(BATCH, -(-int(ends[-1]) // _MOST_FILES))
    writers: dict[int, Any] = {}
    try:
        for batch in stream.batches(columns_of(wanted)):
            target = file_of[_numbers(batch.column(wanted["episode"]), number)]
            order = np.argsort(target, kind="stable")
            for rows in np.split(order, np.flatnonzero(np.diff(target[order])) + 1):
                file = int(target[rows[0]])
                if file not in writers:
                    writers[file] = pa.ipc.new_stream(str(room / f"{file:06d}.arrow"), batch.schema)
                writers[file].write_batch(batch.take(pa.array(rows)))
    finally:
        for writer in writers.values():
            writer.close()


def _episodes(stream: TableStream, name: str) -> tuple[dict[Any, int], NDArray[np.int64]]:
    """A number for each episode in the order in which they begin, and their rows."""
    number: dict[Any, int] = {}
    sizes = np.zeros(0, dtype=np.int64)
    for batch in stream.batches([name]):
        rows = np.bincount(_numbers(batch.column(name), number), minlength=len(number))
        rows[: len(sizes)] += sizes
        sizes = rows
    return number, sizes


def _numbers(column: Any, number: dict[Any, int]) -> NDArray[np.int64]:  # noqa: ANN401 - pyarrow has no types
    """Each row's episode by its number; new ones are numbered on."""
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    codes = pc.fill_null(coded.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    labels = [*coded.dictionary.to_pylist(), None]
    used, first = np.unique(codes, return_index=True)
    table = np.zeros(len(labels), dtype=np.int64)
    for code in used[np.argsort(first)]:
        table[code] = number.setdefault(labels[code], len(number))
    return np.asarray(table[codes])
