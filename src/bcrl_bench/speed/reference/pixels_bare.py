"""Stacked pixel pairs by bare fancy indexing into an array in memory: what anybody would write first."""

import numpy as np


def pairs(
    frames: np.ndarray, rows: np.ndarray, first_row: np.ndarray, stack: int
) -> tuple[np.ndarray, np.ndarray]:
    """Stacks (n, H, W, stack * C) at `rows` and at `rows + 1`; an episode's first frame stands in for those
    before it.
    """
    return stacks(frames, rows, first_row, stack), stacks(frames, rows + 1, first_row, stack)


def stacks(frames: np.ndarray, rows: np.ndarray, first_row: np.ndarray, stack: int) -> np.ndarray:
    """One gather, then the frame axis moved behind the width."""
    n, (height, width, channels) = len(rows), frames.shape[1:]
    index = np.maximum(rows[:, None] - np.arange(stack - 1, -1, -1), first_row[rows][:, None])
    return frames[index].transpose(0, 2, 3, 1, 4).reshape(n, height, width, stack * channels)


def gather(
    frames: np.ndarray, rows: np.ndarray, first_row: np.ndarray, stack: int
) -> tuple[np.ndarray, np.ndarray]:
    """Only the gather of the same frames, (n, stack, H, W, C) at `rows` and `rows + 1`: not stacked for a
    network.
    """
    back = np.arange(stack - 1, -1, -1)
    first = first_row[rows][:, None]
    return frames[np.maximum(rows[:, None] - back, first)], frames[
        np.maximum(rows[:, None] + 1 - back, first)
    ]
