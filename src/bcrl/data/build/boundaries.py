"""Where episodes end, which rows stay, and how rows become the layout of T + 1 observations an episode."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bcrl.data.build.inputs import label, labels
from bcrl.data.dataset import Array
from bcrl.errors import BadInput

Ints = NDArray[np.int64]


def episode_ends(ended: NDArray[np.bool_], names: Array | None) -> NDArray[np.bool_]:
    """Rows that close an episode: marked, before a new episode label, or the last of all."""
    ends = ended.copy()
    ends[-1] = True
    if names is None:
        return ends
    change = names[1:] != names[:-1]
    starts = np.concatenate([[0], np.flatnonzero(change) + 1])
    unique, seen = np.unique(names[starts], return_counts=True)
    if (seen > 1).any():
        again = unique[np.argmax(seen > 1)]
        row = int(starts[np.flatnonzero(names[starts] == again)[1]])
        raise BadInput(f"episode {again} begins again at row {row}; sort the rows by episode and time first.")
    inside = np.flatnonzero(ended[:-1] & ~change)
    if len(inside):
        row = int(inside[0])
        raise BadInput(
            f"episode {names[row]} goes on after row {row}, which is marked terminated or truncated. "
            "Give the rows after it another episode label, or clear the mark."
        )
    ends[:-1] |= change
    return ends


def require_successors(
    observations: Mapping[str, Array],
    next_observations: Mapping[str, Array],
    single: bool,
    ends: NDArray[np.bool_],
    episode_of: Ints,
    chunk: int = 4096,
) -> None:
    """Inside an episode the next observation is the following row's
    observation, or the rows are in no order."""
    for key, value in observations.items():
        for first in range(0, len(ends) - 1, chunk):
            now = slice(first, min(first + chunk, len(ends) - 1))
            then = slice(now.start + 1, now.stop + 1)
            unequal = (next_observations[key][now] != value[then]).reshape(now.stop - first, -1)
            differ = unequal.any(axis=1) & ~ends[now]
            if differ.any():
                row = first + int(np.argmax(differ))
                raise BadInput(
                    f"{label('next_observations', key, single)} row {row} (episode {episode_of[row]}) is not "
                    f"the observation of row {row + 1}, though the episode goes on. Mark the end of each "
                    "episode in terminated or truncated, or use Dataset.from_transitions for rows in no "
                    "order."
                )


def rows_kept(
    ends: NDArray[np.bool_], terminated: NDArray[np.bool_], with_next: bool, drop: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], Ints]:
    """Which transitions stay, and which row each observation comes
    from (count + row for a next observation)."""
    count = len(ends)
    keep = ~ends | ((terminated | with_next) & ~drop)
    begins = np.concatenate([[True], ends[:-1]])
    alone = begins & ~keep
    closing = np.flatnonzero(ends & keep)
    take = np.insert(np.arange(count), closing + 1, closing + (count if with_next else 0))
    return keep, take[~np.insert(alone, closing + 1, False)]


def last_kept(keep: NDArray[np.bool_], episode_of: Ints) -> NDArray[np.bool_]:
    """Which of the kept rows close an episode."""
    kept = episode_of[keep]
    return np.concatenate([kept[1:] != kept[:-1], [True]])


def lay_out(observations: Array, next_observations: Array | None, take: Ints) -> Array:
    """Observations in the dataset's layout; `take` is what `rows_kept` gave."""
    if next_observations is None:
        return np.ascontiguousarray(observations[take])
    count = len(observations)
    dtype = np.result_type(observations, next_observations)
    out = np.empty((len(take), *observations.shape[1:]), dtype=dtype)
    final = take >= count
    out[~final] = observations[take[~final]]
    out[final] = next_observations[take[final] - count]
    return out


def label_of_episodes(
    name: str, given: ArrayLike | None, episode_of: Ints, keep: NDArray[np.bool_]
) -> Array | None:
    """One label per kept episode, from one per row or one per episode."""
    if given is None:
        return None
    own, count, episodes = labels(name, given), len(episode_of), int(episode_of[-1]) + 1
    if len(own) not in (count, episodes):
        raise BadInput(
            f"{name} has {len(own)} labels; expected one per row ({count}) or one per episode ({episodes})."
        )
    first = np.searchsorted(episode_of, np.arange(episodes))
    each = own if len(own) == episodes and episodes != count else own[first]
    if len(own) == count and (own != each[episode_of]).any():
        row = int(np.argmax(own != each[episode_of]))
        raise BadInput(
            f"{name} changes inside episode {episode_of[row]} at row {row}, from {each[episode_of[row]]} to "
            f"{own[row]}; expected one label per episode, such as what was known at its start."
        )
    return each[np.unique(episode_of[keep])]
