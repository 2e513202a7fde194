""".hdf5 and .npz files of plain arrays, some rows at a time."""

import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bcrl.data.build.inputs import flags, same_rows
from bcrl.data.convert.streams import BATCH
from bcrl.data.dataset import LABELS, Array
from bcrl.data.sources.columns import each, names_of
from bcrl.data.sources.hdf5 import names_in, open_hdf5, read_rows
from bcrl.data.sources.npz import open_npz, read_member
from bcrl.data.storage.npy import refuse_claims_of_member
from bcrl.errors import BadInput

_NO_COLUMN = frozenset(("start_observations",))


class Rows(Protocol):
    """The arrays of one file. Rows of an array are asked for in rising order."""

    names: list[str]

    def count(self, name: str) -> int: ...

    def read(self, name: str, first: int, stop: int) -> Array: ...


@contextmanager
def rows_of_hdf5(path: Path) -> Iterator[Rows]:
    with open_hdf5(path) as file:
        yield _HDF5Rows(path, file)


@contextmanager
def rows_of_npz(path: Path) -> Iterator[Rows]:
    with open_npz(path) as file:
        if "bcrl_header" in file.files:
            raise BadInput(f"{path} is a dataset that bcrl wrote whole; use load_dataset and save.")
        yield _NpzRows(path, file)


class _HDF5Rows:
    def __init__(self, path: Path, file: Any) -> None:  # noqa: ANN401 - h5py has no types
        self.path, self.file, self.names = path, file, names_in(path, file)

    def count(self, name: str) -> int:
        shape = self.file[name].shape
        if not shape:
            raise BadInput(f"{self.path}: {name} is a single value; expected one row per transition.")
        return int(shape[0])

    def read(self, name: str, first: int, stop: int) -> Array:
        return read_rows(self.path, self.file, name, slice(first, stop))


class _NpzRows:
    """Members of an .npz file cannot be read from the middle: each has a reader that goes forward."""

    def __init__(self, path: Path, file: Any) -> None:  # noqa: ANN401 - numpy's own
        self.path, self.file, self.names = path, file, list(file.files)
        self.at: dict[str, tuple[int, Any]] = {}

    def count(self, name: str) -> int:
        shape = self._about(name)[0]
        if not shape:
            raise BadInput(f"{self.path}: {name} is a single value; expected one row per transition.")
        return int(shape[0])

    def read(self, name: str, first: int, stop: int) -> Array:
        shape, fortran, kind = self._about(name)
        if fortran:  # its rows lie scattered over the file
            return read_member(self.path, self.file, name)[first:stop]
        size = kind.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        begin, stream = self.at.get(name, (-1, None))
        try:
            if begin < 0 or begin > first:
                stream, begin = self.file.zip.open(self._member(name)), 0
                version = np.lib.format.read_magic(stream)
                skip = np.lib.format.read_array_header_1_0
                (skip if version == (1, 0) else np.lib.format.read_array_header_2_0)(stream)
            while begin < first:  # after a kill: what is converted already
                begin += len(stream.read(min(BATCH, first - begin) * size)) // max(size, 1)
            content = stream.read((stop - first) * size)
        except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise BadInput(f"{self.path}: the array {name!r} cannot be read ({error}).") from error
        self.at[name] = (stop, stream)
        return np.frombuffer(content, kind).reshape(-1, *shape[1:])

    def _member(self, name: str) -> str:
        return name if name in self.file.zip.namelist() else f"{name}.npy"

    def _about(self, name: str) -> Any:  # noqa: ANN401 - shape, order, type
        place = f"{self.path}: the array {name!r}"
        return refuse_claims_of_member(self.file.zip, self._member(name), self.path.stat().st_size, place)


@dataclass(frozen=True)
class Span:
    """Rows of whole episodes, and how many episodes lie before and within."""

    first: int
    stop: int
    episodes: slice


class ArrayStream:
    """The columns of a file of arrays as blocks of whole episodes.

    Args:
        place: the file, for messages.
        rows: gives its arrays.
        columns: as in `columns.from_named`.
    """

    def __init__(self, place: str, rows: Rows, columns: Mapping[str, str] | None) -> None:
        self.rows, self.named = rows, names_of(place, rows.names, columns)
        one = self.named["observations"]
        first = one if isinstance(one, str) else next(iter(one.values()))
        self.size = rows.count(first)
        if self.size == 0:
            raise BadInput("observations has no rows; expected at least one transition.")
        lengths = {
            name: range(rows.count(name))
            for argument, several in self.named.items()
            for name in ([several] if isinstance(several, str) else several.values())
            if argument not in LABELS
        }
        same_rows(first, self.size, lengths)  # type: ignore[arg-type]  # it looks at lengths alone

    def spans(self) -> Iterator[Span]:
        """Where blocks of some ten thousand rows begin and end. Take all before the first block is read."""
        begun = episodes = before = 0
        last: Any = None
        for first in range(0, self.size, BATCH):
            stop = min(first + BATCH, self.size)
            ends, last = self._ends(first, stop, last)
            cut = self.size if stop == self.size else int(ends[-1]) if len(ends) else begun
            inside = len(ends) - (1 if len(ends) and ends[-1] == self.size else 0)
            if cut > begun:
                upto = episodes + inside + (1 if cut == self.size else 0)
                yield Span(begun, cut, slice(before, upto))
                begun, before = cut, upto
            episodes += inside

    def block(self, span: Span) -> dict[str, Any]:
        """The arrays of these rows, by argument of `Dataset.from_arrays`."""

        def read(name: str) -> Array:
            return self.rows.read(name, span.first, span.stop)

        found: dict[str, Any] = {}
        for argument, one in self.named.items():
            if argument in LABELS and isinstance(one, str) and self.rows.count(one) != self.size:
                found[argument] = self._labels(one)[span.episodes]
            elif argument not in _NO_COLUMN:
                found[argument] = each(one, read)
        return found

    def _labels(self, name: str) -> Array:
        """One label an episode: few enough to be held."""
        return self.rows.read(name, 0, self.rows.count(name))

    def _ends(self, first: int, stop: int, last: Any) -> tuple[NDArray[np.int64], Any]:  # noqa: ANN401 - a label
        """Rows of the log before which an episode surely ended, and the last label."""
        if isinstance(self.named.get("episode"), str):
            labels = self.rows.read(str(self.named["episode"]), first, stop).reshape(stop - first)
            change = np.concatenate([[last is not None and labels[0] != last], labels[1:] != labels[:-1]])
            return first + np.flatnonzero(change), labels[-1]
        marked = np.zeros(stop - first, dtype=np.bool_)
        for word in ("terminated", "truncated"):
            if isinstance(self.named.get(word), str):
                marked |= flags(word, self.rows.read(str(self.named[word]), first, stop))
        return first + np.flatnonzero(marked) + 1, None


OPENERS: dict[str, Callable[[Path], AbstractContextManager[Rows]]] = {
    "hdf5": rows_of_hdf5,
    "npz": rows_of_npz,
}
