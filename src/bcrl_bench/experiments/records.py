"""Records on disk: one JSON Lines file a profile, a cell a line in the order of the cells' names.

results/<profile>.jsonl            finished cells
results/<profile>/failed.jsonl     what went wrong, until the cell succeeds
results/<profile>/tasks.json       what figures show of each task

A file is read, changed and replaced as a whole under a lock, so a kill leaves the old file or the new one,
and two runs at once keep both their cells.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

from bcrl.data.storage.folder import write_json
from bcrl.errors import BadInput
from bcrl.writing import atomic_write
from bcrl_bench.experiments.profile import Experiment
from bcrl_bench.processes import file_lock
from bcrl_bench.repository import origin

Record = dict[str, Any]


@dataclass(frozen=True)
class Records:
    """The results of a profile.

    Attributes:
        folder: results/<profile>; the finished cells lie beside it.
    """

    folder: Path

    @property
    def path(self) -> Path:
        """The file of finished cells."""
        return self.folder.parent / f"{self.folder.name}.jsonl"

    @property
    def failures_path(self) -> Path:
        """The file of failed cells."""
        return self.folder / "failed.jsonl"

    def finished(self) -> dict[Experiment, Record]:
        """Every finished cell."""
        return read_lines(self.path)

    def failed(self) -> dict[Experiment, Record]:
        """Every cell whose last run failed."""
        return read_lines(self.failures_path)

    def keep(self, experiment: Experiment, record: Mapping[str, Any]) -> None:
        """Write a finished cell; its failure, if there was one, is past."""
        with self._lock():
            write_lines(self.path, {**self.finished(), experiment: dict(record)})
            failed = self.failed()
            if failed.pop(experiment, None) is not None:
                write_lines(self.failures_path, failed)

    def keep_failure(self, experiment: Experiment, error: str) -> None:
        """Write down what went wrong."""
        record = {"experiment": asdict(experiment), "error": error, **origin()}
        with self._lock():
            write_lines(self.failures_path, {**self.failed(), experiment: record})

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with file_lock(self.folder):
            yield

    def all(self) -> list[Record]:
        """Every finished cell in the order of names.

        Cells that should share a world are refused where they do not: a machine may simulate other episodes,
        and actors be replaced. Last bits (of logged densities, say) do differ between processors, so hashes
        would refuse too much.
        """
        found = self.finished()
        worlds: dict[tuple[str, ...], tuple[str, str]] = {}
        for cell, record in found.items():
            earned = {"dataset": record["dataset"]["mean_return"], "policy": record["truth"]["value"]}
            for what, mark in ((what, f"{value:.9g}") for what, value in earned.items()):
                same, first = worlds.setdefault((what, cell.task, getattr(cell, what)), (mark, cell.name))
                if same != mark:
                    raise BadInput(
                        f"In {self.path}, {cell.name} and {first} are of the same {what} by name, but it "
                        f"earns {mark} in one "
                        f"and {same} in the other. Delete the lines of the older world and run those cells "
                        "again."
                    )
        return list(found.values())

    def portraits(self) -> dict[str, Any]:
        """What was written about each task."""
        path = self.folder / "tasks.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def keep_portraits(self, portraits: Mapping[str, Any]) -> None:
        """Write about tasks; what is there of other tasks stays."""
        with self._lock():
            write_json(self.folder / "tasks.json", {**self.portraits(), **portraits})


def read_lines(path: Path) -> dict[Experiment, Record]:
    """The cells of a file, in its order; none where there is no file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    records: Iterable[Record] = map(json.loads, lines)
    return {Experiment(**record["experiment"]): record for record in records}


def write_lines(path: Path, cells: Mapping[Experiment, Record]) -> None:
    """A line for each cell in the order of names; no file where there is no cell."""
    if not cells:
        path.unlink(missing_ok=True)
        return
    with atomic_write(path) as file:
        for cell in sorted(cells, key=astuple):
            file.write(json.dumps(cells[cell], allow_nan=False).encode() + b"\n")
