"""Frames, read where they lie and stacked fast.

A mixture of two memory-mapped folders, or a tenth of one, keeps its pixels on disk: `LazyRows` are several
arrays as one, or some rows of one, without copying a frame. They behave like an array for what datasets need
(shape, dtype, length, indexing along the first axis); `np.asarray` makes the real array.

A stack holds k frames of C channels side by side in its last axis. Copying a frame of C = 3 channels into
that layout the obvious way moves 3 bytes at a time; one strided pass for each channel of each frame, over a
few samples that fit the processor's cache, is about five times as fast (bcrl_bench/speed/pixels.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# Bytes. Frames and stacks are read and written several times over: they should stay in the cache.
_CACHE = 700_000


class LazyRows:
    """Row i is row `index[i]` of the parts laid end to end; without an index, row i itself."""

    def __init__(self, parts: Sequence[Array], index: NDArray[np.int64] | None = None) -> None:
        assert parts and all(p.shape[1:] == parts[0].shape[1:] and p.dtype == parts[0].dtype for p in parts)
        self.parts = tuple(parts)
        self.index = index
        self._ends = np.cumsum([len(part) for part in parts])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"parts": tuple(in_files(part) for part in self.parts)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"parts": tuple(from_files(part) for part in state["parts"])})

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

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:  # noqa: ANN401
        return self[:] if dtype is None else self[:].astype(dtype, copy=False)


@dataclass(frozen=True)
class Mapped:
    """Where an array lies in a file: how a memory-mapped one travels to another process."""

    path: str
    offset: int
    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, array: Array) -> "Mapped | None":
        """None where the array lies in memory, or not as it lies in its file."""
        base: Any = array
        while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
            base = base.base
        if not isinstance(base, np.memmap) or not array.flags.c_contiguous or base.filename is None:
            return None
        while isinstance(base.base, np.memmap):  # a view's own offset is its parent's
            base = base.base
        first = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        return cls(str(base.filename), int(base.offset + first), array.shape, array.dtype.str)

    def array(self) -> Array:
        return np.asarray(np.memmap(self.path, np.dtype(self.dtype), "r", self.offset, self.shape))


def in_files(value: Any) -> Any:  # noqa: ANN401 - an array, arrays by key, or anything else
    """The value with memory-mapped arrays as the places where they lie."""
    if isinstance(value, Mapping):
        return {key: in_files(one) for key, one in value.items()}
    return (Mapped.of(value) or value) if isinstance(value, np.ndarray) else value


def from_files(value: Any) -> Any:  # noqa: ANN401 - what `in_files` gave
    """What `in_files` was given, mapped again."""
    if isinstance(value, Mapping):
        return {key: from_files(one) for key, one in value.items()}
    return value.array() if isinstance(value, Mapped) else value


def select_rows(source: Array, index: NDArray[np.int64]) -> Array:
    """These rows of an array, left where they are. Typed as the array that it stands in for."""
    if not isinstance(source, LazyRows):
        return LazyRows([source], index)  # type: ignore[return-value]
    chosen = index if source.index is None else source.index[index]  # type: ignore[unreachable]
    return LazyRows(source.parts, chosen)


def join_rows(sources: Sequence[Array]) -> Array:
    """Several arrays end to end, left where they are."""
    parts: list[Array] = []
    indices: list[NDArray[np.int64]] = []
    begin = 0
    for source in sources:
        own = source.parts if isinstance(source, LazyRows) else (source,)
        size = sum(len(part) for part in own)
        chosen = source.index if isinstance(source, LazyRows) else None
        indices.append((np.arange(size) if chosen is None else chosen) + begin)
        parts.extend(own)
        begin += size
    return LazyRows(parts, np.concatenate(indices))  # type: ignore[return-value]


def stack_frames(source: Array, frames: NDArray[np.int64]) -> Array:
    """Rows `frames` (n, k) of `source` (rows, H, W, C) as stacks of shape
    (n, H, W, k * C), in the order of `frames`."""
    return _stacks(source, frames, (frames.shape[1],))[0]


def stack_pairs(source: Array, frames: NDArray[np.int64]) -> tuple[Array, Array]:
    """Two stacks that share frames: from `frames` (n, k + 1), the
    first k and the last k, each frame read once."""
    first, second = _stacks(source, frames, (frames.shape[1] - 1,) * 2)
    return first, second


def _stacks(source: Array, frames: NDArray[np.int64], widths: tuple[int, ...]) -> list[Array]:
    n, read = frames.shape
    height, width, channels = source.shape[1:]
    outs = [np.empty((n, height * width, k, channels), dtype=source.dtype) for k in widths]
    block = max(1, _CACHE // max(1, 2 * read * height * width * channels))
    held = np.empty((read * block, height, width, channels), dtype=source.dtype)
    for first in range(0, n, block):
        rows = frames[first : first + block].T
        count = rows.shape[1]
        taken = _take(source, rows.reshape(-1), held[: read * count]).reshape(read, count, -1, channels)
        for shift, (out, k) in enumerate(zip(outs, widths, strict=True)):
            into = out[first : first + count]
            for position in range(k):
                for channel in range(channels):
                    into[:, :, position, channel] = taken[position + shift, :, :, channel]
    return [out.reshape(n, height, width, k * channels) for out, k in zip(outs, widths, strict=True)]


def _take(source: Array, rows: NDArray[np.int64], out: Array) -> Array:
    if isinstance(source, np.ndarray):
        return np.take(source, rows, axis=0, out=out, mode="clip")
    out[...] = source[rows]  # type: ignore[unreachable] # LazyRows stand in for arrays
    return out
