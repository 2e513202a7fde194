"""Batches: shuffled transitions, and segments of consecutive steps, read from memory maps one batch ahead.

    for batch in shuffled(dataset, 256, np.random.default_rng(0)):
        batch.observations["pixels"]          # (256, 84, 84, 9) uint8; batch.next_observations likewise

The order is drawn from the caller's generator in the caller's thread; one thread reads ahead of it. The same
seed gives the same batches, whatever `ahead` is, and `skip` goes straight to where a stopped run was. The
last batch of a pass may be smaller; nothing is dropped.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count, islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array, Dataset, is_pixels
from bcrl.data.frames import stack_pairs
from bcrl.errors import BadInput

Ints = NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Batch:
    """Transitions (s, a, r, s', terminated), n rows each; `index` says which transitions they are."""

    index: Ints
    observations: dict[str, Array]
    actions: Array
    rewards: NDArray[np.float64]
    next_observations: dict[str, Array]
    terminated: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Segments:
    """n runs of K steps inside an episode: K + 1 observations, K actions,
    rewards and ends; `index` is each first step."""

    index: Ints
    observations: dict[str, Array]
    actions: Array
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]


def take(dataset: Dataset, index: Ints) -> Batch:
    """The batch of these transitions. Frames that s and s' share are read once."""
    index = np.asarray(index, dtype=np.int64)
    rows = dataset.rows[index]
    now: dict[str, Array] = {}
    then: dict[str, Array] = {}
    for key, source in dataset.observations.items():
        if dataset.stack > 1 and is_pixels(source):
            now[key], then[key] = stack_pairs(source, dataset.frame_rows(rows + 1, dataset.stack + 1))
        else:
            now[key], then[key] = np.asarray(source[rows]), np.asarray(source[rows + 1])
    return Batch(index, now, dataset.actions[index], dataset.rewards[index], then, dataset.terminated[index])


def take_segments(dataset: Dataset, index: Ints, steps: int) -> Segments:
    """The segments of `steps` steps that begin at these transitions."""
    index = np.asarray(index, dtype=np.int64)
    rows = dataset.rows[index][:, None] + np.arange(steps + 1)
    seen = dataset.observe(rows.reshape(-1))
    each = index[:, None] + np.arange(steps)
    return Segments(
        index,
        {key: value.reshape(*rows.shape, *value.shape[1:]) for key, value in seen.items()},
        dataset.actions[each],
        dataset.rewards[each],
        dataset.terminated[each],
    )


def shuffled(
    dataset: Dataset,
    batch_size: int,
    generator: np.random.Generator,
    *,
    passes: int | None = 1,
    ahead: int = 2,
    skip: int = 0,
) -> Iterator[Batch]:
    """Passes over all transitions in random order.

    Args:
        dataset: where the transitions lie.
        batch_size: rows a batch.
        generator: draws one permutation a pass.
        passes: number of passes; None goes on for ever.
        ahead: batches read in advance by the reading thread; 0 reads in the caller's.
        skip: batches to leave out at the beginning, without reading them.
    """
    order = _batches(np.arange(len(dataset)), batch_size, generator, passes)
    return _ahead(lambda index: take(dataset, index), islice(order, skip, None), ahead)


def segments(
    dataset: Dataset,
    batch_size: int,
    steps: int,
    generator: np.random.Generator | None,
    *,
    passes: int | None = 1,
    ahead: int = 2,
    skip: int = 0,
) -> Iterator[Segments]:
    """Every run of `steps` steps that fits in an episode; shuffled, or
    in the data's order without a generator."""
    order = _batches(segment_starts(dataset, steps), batch_size, generator, passes)
    return _ahead(lambda index: take_segments(dataset, index, steps), islice(order, skip, None), ahead)


def segment_starts(dataset: Dataset, steps: int) -> Ints:
    """Transitions at which a run of `steps` steps begins that stays inside its episode."""
    dataset.require_order("A segment")
    if steps < 1:
        raise BadInput(f"steps is {steps}; expected at least 1.")
    left = dataset.offsets[dataset.episode_of + 1] - np.arange(len(dataset))
    starts = np.flatnonzero(left >= steps)
    if len(starts) == 0:
        raise BadInput(
            f"No episode has {steps} steps; the longest has {dataset.lengths.max()}. Ask for fewer."
        )
    return starts


def _batches(
    items: Ints, batch_size: int, generator: np.random.Generator | None, passes: int | None
) -> Iterator[Ints]:
    if batch_size < 1:
        raise BadInput(f"batch_size is {batch_size}; expected at least 1.")
    for _ in count() if passes is None else range(passes):
        order = items if generator is None else items[generator.permutation(len(items))]
        for first in range(0, len(order), batch_size):
            # Rising row numbers: a batch reads its files in one direction.
            yield np.sort(order[first : first + batch_size])


def _ahead(work: Callable[[Ints], T], items: Iterator[Ints], ahead: int) -> Iterator[T]:
    """`map`, with up to `ahead` results being made by one thread while the caller uses the last."""
    if ahead == 0:
        yield from map(work, items)
        return
    waiting: deque[Future[T]] = deque()
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="bcrl-batches")
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
