"""`convert`: a file or a folder of any size into bcrl's own folder, in constant memory.

    source -> blocks of whole episodes -> the checks of data/build -> arrays that grow on disk

Most sources are read once. Where something must be known of all rows first (words, dates, gaps to fill, the
types of a .csv file's columns) they are read twice, and where episodes are interleaved their rows are dealt
out on disk first. A killed conversion goes on after its last mark; the bytes are the same.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from bcrl.data.build.arrays import LoggedArrays, build_block
from bcrl.data.build.inputs import frame_stack
from bcrl.data.convert.arrays import OPENERS, ArrayStream
from bcrl.data.convert.facts import column_facts, needs_facts
from bcrl.data.convert.streams import TableStream, Unreadable
from bcrl.data.convert.whole import Interleaved, blocks_dealt_out, blocks_in_order, episodes_in
from bcrl.data.dataset import Dataset, Ends
from bcrl.data.layout import frame_kind
from bcrl.data.sources import load_dataset, reader_of
from bcrl.data.sources.cells import Missing
from bcrl.data.sources.lerobot import Recording
from bcrl.data.sources.tables import IN_ORDER, Reading, chosen_columns, listed, told
from bcrl.data.storage.blocks import BlockWriter
from bcrl.errors import BadInput, Gaps

# Columns in which nothing may be missing.
_WHOLE = ("reward", "log_prob", "propensity", "terminated", "truncated")
Show = Callable[[Mapping[str, Any]], None]


def convert(
    source: str | Path,
    folder: str | Path,
    *,
    columns: Mapping[str, Any] | None = None,
    num_actions: int | None = None,
    cluster: str | None = None,
    ends: Ends | None = None,
    missing: Missing | None = None,
    cohort: str | None = None,
    stack: int | None = None,
    show: Show = lambda news: None,
) -> Dataset:
    """Write a source into a folder that `load_dataset` opens at once, whatever its size.

    Args:
        source: .csv, .parquet, a folder of .parquet files, .hdf5, .npz, a LeRobot folder; DrQ-v2 folders and
            minari:ID too.
        folder: where to; one that a killed conversion of the same source left is continued.
        columns: as in `load_dataset`, as are the arguments not listed here.
        num_actions: number of discrete actions; None takes the largest one seen plus one.
        cluster: for tables, the column that says what is independent.
        ends: what ends of episodes are that nobody marked.
        missing: for tables, what to do about observations that are not there.
        cohort: for tables, a column of groups to look at one by one.
        stack: frames to stack when a batch is taken.
        show: called with progress.

    Returns:
        The dataset, memory-mapped.
    """
    module, _, place = reader_of(source)
    options: dict[str, Any] = {
        "columns": None if columns is None else dict(columns),
        "num_actions": num_actions,
    }
    options |= {"cluster": cluster, "cohort": cohort, "ends": ends, "missing": missing, "stack": stack}
    given = {name: value for name, value in options.items() if value is not None}
    if module == "folder":
        raise BadInput(f"{place} is bcrl's own folder already; nothing to convert.")
    if module in ("drq", "minari"):  # they hold one episode at a time themselves
        return load_dataset(source, into=folder, **given)
    known = {"tables": ("columns", "num_actions", "cluster", "cohort", "ends", "missing")}
    for name in given:
        if name not in known.get(module, ("columns", "num_actions", "ends", "stack")):
            raise BadInput(f"{place}: the option {name!r} is unknown for this kind.")
    if missing is not None and missing not in get_args(Missing):
        raise BadInput(f"missing is {missing!r}; expected 'refuse', 'forward' or 'mean'.")
    writer = BlockWriter(folder, {"source": _fingerprint(place), "options": options})
    pace = _Pace(show, f"converting {place.name}")
    try:
        if module == "lerobot":
            recording = Recording(place, columns, num_actions, ends, 1 if stack is None else stack)
            return recording.write(writer, pace.tell)
        if module == "tables":
            return _Table(place, options, writer, pace).convert()
        return _arrays(module, place, options, writer, pace)
    except BadInput:
        writer.abandon()
        raise


def _fingerprint(place: Path) -> dict[str, Any]:
    """What a source is, without reading it: names, sizes, times of its files."""
    files = sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
    about = [(str(path.relative_to(place.parent)), *_size_and_time(path)) for path in files]
    digest = hashlib.sha256(repr(about).encode()).hexdigest()
    return {"path": str(place.resolve()), "files": len(files), "digest": digest}


def _size_and_time(path: Path) -> tuple[int, int]:
    about = os.stat(path)
    return about.st_size, about.st_mtime_ns


def _arrays(
    module: str, place: Path, options: Mapping[str, Any], writer: BlockWriter, pace: "_Pace"
) -> Dataset:
    with OPENERS[module](place) as rows:
        stream = ArrayStream(str(place), rows, options["columns"])
        for span in list(stream.spans()):
            if span.stop > writer.position:
                given = LoggedArrays(
                    **stream.block(span),
                    stack=frame_stack(1 if options["stack"] is None else options["stack"]),
                    num_actions=options["num_actions"],
                    ends=options["ends"],
                    marked=span.first > 0,
                    source=str(place),
                )
                with _placing(_Place(span.first, span.episodes.start)):
                    writer.append(*build_block(given), span.stop)
            pace.tell(span.stop, stream.size)
    return writer.close(str(place), {})


class _Table:
    """The conversion of one table; what is found out on the way may make it begin again, in another way."""

    def __init__(self, place: Path, options: Mapping[str, Any], writer: BlockWriter, pace: "_Pace") -> None:
        self.place, self.options, self.writer, self.pace = place, options, writer, pace
        self.missing: Missing = options["missing"] or "refuse"

    def convert(self) -> Dataset:
        while True:
            thorough = bool(self.writer.plan.get("thorough"))
            try:
                return self._attempt(thorough)
            except Interleaved:
                plan = {**self.writer.plan, "dealt": True}
            except (Unreadable, Gaps):
                if thorough:
                    raise
                # Later rows are unlike the first ones. All are looked at, and what is wrong is told of all.
                plan = {**self.writer.plan, "thorough": True}
            self.writer.start_again(plan)

    def _attempt(self, thorough: bool) -> Dataset:
        stream = TableStream(self.place, thorough)
        named = (self.options[name] for name in ("columns", "cluster", "cohort"))
        wanted, guessed = chosen_columns(str(self.place), stream, *named)
        Reading(str(self.place), stream, wanted, self.missing, frame_kind(self.place)).needed()
        names = _of(wanted, "observation", "next_observation", "action")
        known = None
        if thorough or self.missing != "refuse" or needs_facts(stream, names):
            known = column_facts(stream, names + _of(wanted, *_WHOLE))
        dealt = self.writer.plan.get("dealt")
        blocks = (
            blocks_dealt_out(stream, wanted, self.writer.side_room)
            if dealt
            else blocks_in_order(stream, wanted)
        )
        notes: list[str] | None = None
        for begin, table in _placed(blocks, wanted):
            stop = begin.row + table.num_rows
            if stop > self.writer.position or notes is None:
                reading = Reading(str(self.place), table, wanted, self.missing, frame_kind(self.place), known)
                with _placing(begin):
                    given, layout, labels = reading.logged(self.options["num_actions"], self.options["ends"])
                    notes = [note for note in reading.notes if not note.startswith(IN_ORDER)]
                    if len(notes) < len(reading.notes):
                        self.writer.plan["ordered"] = True
                    if stop > self.writer.position:
                        given = replace(given, marked=begin.row > 0)
                        self.writer.append(*build_block(given), stop)
                about = {"actions": labels, "columns": layout.names}
            self.pace.tell(stream.done, stream.size)
        if notes is None:
            raise BadInput(f"{self.place} has no rows; expected one per transition.")
        if self.writer.plan.get("ordered"):
            notes.append(f"{IN_ORDER} {wanted['episode']!r} and {wanted['step']!r}.")
        return self.writer.close(str(self.place), about | {"notes": [*told(guessed, wanted), *notes]})


def _of(wanted: Mapping[str, Any], *words: str) -> list[str]:
    return [name for word in words for name in listed(wanted.get(word, ()))]


@dataclass(frozen=True)
class _Place:
    """Rows and episodes of the source that lie before a block."""

    row: int = 0
    episode: int = 0


def _placed(blocks: Iterator[Any], wanted: Mapping[str, Any]) -> Iterator[tuple[_Place, Any]]:
    begin = _Place()
    for table in blocks:
        yield begin, table
        begin = _Place(begin.row + table.num_rows, begin.episode + episodes_in(table, wanted))


# What readers say of rows and episodes; a hole's row is counted from the source's beginning already.
_ROW = re.compile(r"\brow (\d+)\b(?! and in )")
_EPISODE = re.compile(r"(\(episode |inside episode )(\d+)")


@contextmanager
def _placing(begin: _Place) -> Iterator[None]:
    """Messages count rows and episodes from the block's beginning; here from the source's."""

    def moved(text: str) -> str:
        text = _ROW.sub(lambda found: f"row {int(found[1]) + begin.row}", text)
        return _EPISODE.sub(lambda found: f"{found[1]}{int(found[2]) + begin.episode}", text)

    try:
        yield
    except Gaps as error:
        place = str(error).partition(": ")[0].partition(" (")[0]
        raise Gaps(place, [moved(text).removesuffix(".") for text in error.found]) from error
    except BadInput as error:
        raise BadInput(moved(str(error))) from error


class _Pace:
    """Progress of a conversion: rows, or bytes of a .csv file."""

    def __init__(self, show: Show, stage: str) -> None:
        self.show, self.stage, self.began = show, stage, time.monotonic()

    def tell(self, done: int, size: int) -> None:
        done, seconds = min(done, size), max(time.monotonic() - self.began, 1e-9)
        left = (size - done) * seconds / max(done, 1)
        self.show({"stage": self.stage, "step": done, "steps": size, "rate": done / seconds, "left": left})
