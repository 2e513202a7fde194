"""Is a case covered by its log? Said by the simulator before any estimate is made (DESIGN, section 4).

Over 200 target rollouts, discounted: the share of steps at which (a) the logging policy would show the
target's action and (b) the state's nearest logged neighbour, in standardised units, is no farther than the
99th percentile of nearest-neighbour distances between logged episodes.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COVERED, PARTLY = 0.95, 0.60
PERCENTILE = 99.0
SAMPLED = 2_000  # logged states whose nearest neighbour in another episode is looked for
_CHUNK = 500  # rows of a distance table at a time
_SAME = 1e-6  # distances below are rounding


@dataclass(frozen=True)
class Mark:
    """The mark, the share of steps behind it, and the shares by actions and by states alone."""

    mark: str
    share: float
    actions: float
    states: float


def mark_of(
    supported: NDArray[np.bool_],
    visited: NDArray[np.float64],
    weights: NDArray[np.float64],
    logged: NDArray[np.float64],
    episode: NDArray[np.int64],
) -> Mark:
    """The mark of a case.

    Args:
        supported: whether the log would show the target's action at each visited step, shape (n,).
        visited: states of the target's rollouts, shape (n, k).
        weights: discounted time that each of them stands for, shape (n,).
        logged: logged states, shape (m, k).
        episode: episode of each logged state, shape (m,).
    """
    near = nearby(visited, logged, episode)
    total = weights.sum()
    both, actions, states = (
        float((weights * ok).sum() / total) for ok in (supported & near, supported, near)
    )
    mark = "covered" if both >= COVERED else "partly" if both >= PARTLY else "not"
    return Mark(mark, both, actions, states)


def nearby(
    visited: NDArray[np.float64], logged: NDArray[np.float64], episode: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which visited states are as near to the log as its episodes are to each other, shape (n,)."""
    centre, spread = logged.mean(axis=0), logged.std(axis=0)
    spread = np.where(spread > 1e-8, spread, 1.0)
    log, there = (logged - centre) / spread, (visited - centre) / spread
    rows = np.random.default_rng(0).permutation(len(log))[:SAMPLED]
    between = nearest(log[rows], log, episode[rows], episode)
    between = between[np.isfinite(between)]
    limit = np.percentile(between, PERCENTILE) if len(between) else 0.0
    return np.asarray(nearest(there, log) <= limit + _SAME)


def nearest(
    points: NDArray[np.float64],
    others: NDArray[np.float64],
    own: NDArray[np.int64] | None = None,
    episode: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """Distance of each point to the nearest of the others; with episodes, to the nearest of another one."""
    found = np.empty(len(points))
    sizes = (others**2).sum(axis=1)
    for first in range(0, len(points), _CHUNK):
        part = points[first : first + _CHUNK]
        squared = (part**2).sum(axis=1)[:, None] - 2.0 * part @ others.T + sizes
        if own is not None and episode is not None:
            squared[own[first : first + _CHUNK, None] == episode[None, :]] = np.inf
        found[first : first + _CHUNK] = squared.min(axis=1)
    return np.sqrt(np.maximum(found, 0.0))
