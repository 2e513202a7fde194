"""Rows that are read where they lie: several arrays as one, or some rows of one, without copying a frame.

A mixture of two memory-mapped folders, or a tenth of one, keeps its pixels on disk. `Rows` behaves like an array for
what datasets need (shape, dtype, length, indexing along the first axis); `np.asarray` makes the real array.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Rows:
    """Row i is row `index[i]` of the parts laid end to end; without an index, row i itself."""

    def __init__(self, parts: Sequence[Array], index: NDArray[np.int64] | None = None) -> None:
        assert parts and all(p.shape[1:] == parts[0].shape[1:] and p.dtype == parts[0].dtype for p in parts)
        self.parts = tuple(parts)
        self.index = index
        self._ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return int(self._ends[-1]) if self.index is None else len(self.index)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self.parts[0].shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.parts[0].dtype

    @property
    def ndim(self) -> int:
        return self.parts[0].ndim

    def __getitem__(self, key: Any) -> Array:  # noqa: ANN401 - whatever indexes an array's first axis
        wanted = np.arange(len(self))[key]
        flat = wanted.reshape(-1) if self.index is None else self.index[wanted.reshape(-1)]
        out = np.empty((len(flat), *self.shape[1:]), dtype=self.dtype)
        which = np.searchsorted(self._ends, flat, side="right")
        for number, part in enumerate(self.parts):
            here = np.flatnonzero(which == number)
            if len(here) == len(flat):
                np.take(part, flat - (self._ends[number] - len(part)), axis=0, out=out, mode="clip")
            elif len(here):
                out[here] = part[flat[here] - (self._ends[number] - len(part))]
        return out.reshape(np.shape(wanted) + self.shape[1:])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:  # noqa: ANN401 - numpy's protocol
        return self[:] if dtype is None else self[:].astype(dtype, copy=False)


def pick(source: Array, index: NDArray[np.int64]) -> Array:
    """These rows of an array, left where they are. Typed as the array that it stands in for."""
    if not isinstance(source, Rows):
        return Rows([source], index)  # type: ignore[return-value]
    return Rows(source.parts, index if source.index is None else source.index[index])  # type: ignore[unreachable]


def join(sources: Sequence[Array]) -> Array:
    """Several arrays end to end, left where they are."""
    parts: list[Array] = []
    indices: list[NDArray[np.int64]] = []
    begin = 0
    for source in sources:
        own = source.parts if isinstance(source, Rows) else (source,)
        size = sum(len(part) for part in own)
        chosen = source.index if isinstance(source, Rows) else None
        indices.append((np.arange(size) if chosen is None else chosen) + begin)
        parts.extend(own)
        begin += size
    return Rows(parts, np.concatenate(indices))  # type: ignore[return-value]
