"""Frame stacks, gathered fast.

A stack holds k frames of C channels side by side in its last axis. Copying a frame of C = 3 channels into that layout the
obvious way moves 3 bytes at a time; one strided pass for each channel of each frame, over a few samples that fit the
processor's cache, is about five times as fast (bcrl_bench.speed.pixels).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# Frames and stacks of one block are read and written several times over: they should stay in the cache (bytes).
_CACHE = 700_000


def stack_frames(source: Array, frames: NDArray[np.int64]) -> Array:
    """Rows `frames` (n, k) of `source` (rows, H, W, C) as stacks of shape (n, H, W, k * C), in the order of `frames`."""
    return _stacks(source, frames, (frames.shape[1],))[0]


def stack_pairs(source: Array, frames: NDArray[np.int64]) -> tuple[Array, Array]:
    """Two stacks that share frames: from `frames` (n, k + 1), the first k and the last k, each frame read once."""
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
    out[...] = source[rows]  # type: ignore[unreachable] # Rows stand in for arrays
    return out
