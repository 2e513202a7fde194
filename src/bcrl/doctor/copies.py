"""Episodes that repeat others: exact copies, copies with a little noise, and repeats that chance explains.

In a world of few states, short episodes repeat by themselves. What the other episodes show of each step says
how often; only repeats beyond that are copies.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array, Dataset, deviation, is_pixels
from bcrl.doctor.findings import Bearing, Finding

Columns = list[tuple[Array, bool]]
# Episodes that differ by less than this many deviations in every number are copies.
NEAR = 1e-4
# Shorter ones come close to each other by chance.
_LEAST_STEPS = 3
# Repeats that chance makes, of one episode: below this it is no chance.
_BY_CHANCE = 0.01


def examine_copies(dataset: Dataset, columns: Columns, pairs: NDArray[np.int64]) -> Iterator[Finding]:
    """The finding, if some of the pairs (first, second episode) are copies.

    Args:
        dataset: the log.
        columns: its numbers (n, k), and whether each has one more row an episode.
        pairs: episodes of equal length that look alike, shape (n, 2).
    """
    spreads = [np.maximum(deviation(column), 1e-300) for column, _ in columns]
    apart = np.array([_distance(dataset, columns, spreads, *pair) for pair in pairs.tolist()])
    noisy = (apart <= NEAR) & (apart > 0.0) & (dataset.lengths[pairs[:, 0]] >= _LEAST_STEPS)
    exact = pairs[apart == 0.0]
    if len(exact):
        exact = exact[_beyond_chance(dataset, columns, exact)]
    copies = sorted([*exact.tolist(), *pairs[noisy].tolist()])
    if not copies:
        return
    how = "exactly" if not noisy.any() else "up to a little noise"
    what = (
        f"{len(copies)} episodes repeat another one {how}: they add no information but shrink the interval."
    )
    where = "; ".join(f"episode {b} = episode {a}" for a, b in copies[:3])
    do = "Remove the copies, unless the task and its start are deterministic."
    many = len(copies) >= dataset.num_episodes / 2
    yield Finding("warning", what, where, do, Bearing("copied episodes", "distrust" if many else "caution"))


def _distance(
    dataset: Dataset, columns: Columns, spreads: list[NDArray[np.float64]], one: int, other: int
) -> float:
    """The largest difference between two episodes, in deviations; infinite where three frames differ."""
    largest = 0.0
    for (column, observed), spread in zip(columns, spreads, strict=True):
        a, b = (column[dataset.episode_slices(episode)[observed]] for episode in (one, other))
        if not np.array_equal(a, b):
            apart = np.abs(a.astype(np.float64) - b.astype(np.float64)) / spread
            # Integers that differ where float64 cannot tell are no copies.
            largest = max(largest, float(apart.max()), np.inf if a.dtype.kind in "iub" else 0.0)
    for value in dataset.observations.values():
        if is_pixels(value):
            rows = [dataset.episode_slices(episode)[1] for episode in (one, other)]
            some = [np.linspace(row.start, row.stop - 1, 3).astype(np.int64) for row in rows]
            largest = largest if np.array_equal(value[some[0]], value[some[1]]) else np.inf
    return largest


def _beyond_chance(dataset: Dataset, columns: Columns, pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which pairs the steps of the other, distinct episodes do not explain."""
    row = np.concatenate([np.ascontiguousarray(_step_rows(dataset, *part)) for part in columns], axis=1)
    kind = np.unique(row.view(np.dtype((np.void, row.shape[1]))).reshape(-1), return_inverse=True)[1]
    paths = [tuple(kind[dataset.episode_slices(e)[0]].tolist()) for e in range(dataset.num_episodes)]
    distinct = set(paths)
    # What begins an episode follows None; each distinct episode counts once.
    steps = Counter(step for path in distinct for step in zip((None, *path), path, strict=False))
    visits = Counter(place for path in distinct for place in (None, *path[:-1]))
    found = np.ones(len(pairs), dtype=np.bool_)
    for number, (one, _) in enumerate(pairs.tolist()):
        path = paths[one]
        own = Counter(zip((None, *path), path, strict=False))
        here = Counter((None, *path[:-1]))
        chances = [
            (steps[s] - n) / max(visits[s[0]] - here[s[0]], 1) for s, n in own.items() for _ in range(n)
        ]
        found[number] = len(paths) * np.prod(chances) < _BY_CHANCE
    return found


def _step_rows(dataset: Dataset, column: Array, observed: bool) -> Array:
    """The column's numbers at every transition as bytes, (N, width)."""
    rows = np.ascontiguousarray(column[dataset.rows] if observed else column)
    return rows.view(np.uint8).reshape(len(rows), -1)
