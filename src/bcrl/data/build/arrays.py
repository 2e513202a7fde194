"""Ways in: plain arrays, unordered transitions, lists of episodes -> `Dataset`.

Rows come as a user has them, one per transition. A transition without a known next observation (the last row of a
truncated or unfinished episode when `next_observations` is not given) cannot be learned from and is dropped; the
number is kept in `Dataset.dropped`. The observation after the world's end is never used: the last one is repeated.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bcrl.data.build.boundaries import (
    episode_ends,
    label_of_episodes,
    laid_out,
    last_kept,
    require_successors,
    rows_kept,
)
from bcrl.data.dataset import Array, Dataset
from bcrl.data.build.inputs import (
    Given,
    finite,
    flags,
    flat,
    frame_stack,
    keyed,
    label,
    labels,
    logged_actions,
    same_rows,
)
from bcrl.errors import BadInput

Ints = NDArray[np.int64]


def from_arrays(
    observations: Given,
    actions: ArrayLike,
    rewards: ArrayLike,
    terminated: ArrayLike,
    truncated: ArrayLike | None = None,
    next_observations: Given | None = None,
    log_prob: ArrayLike | None = None,
    cluster: ArrayLike | None = None,
    stack: int = 1,
    num_actions: int | None = None,
    episode: ArrayLike | None = None,
    behaviour: ArrayLike | None = None,
    source: str = "arrays",
) -> Dataset:
    """Episodes laid end to end, one row per transition; see `Dataset.from_arrays`."""
    seen, single = keyed("observations", observations)
    taken, num_actions = logged_actions(actions, num_actions)
    columns = {"rewards": flat("rewards", rewards), "terminated": flags("terminated", terminated)}
    columns["truncated"] = (
        np.zeros(len(columns["terminated"]), dtype=np.bool_)
        if truncated is None
        else flags("truncated", truncated)
    )
    count = len(next(iter(seen.values())))
    following = None if next_observations is None else _following(next_observations, seen, single)
    behind = None if log_prob is None else flat("log_prob", log_prob)
    names = None if episode is None else labels("episode", episode)
    same_rows(
        label("observations", next(iter(seen)), single),
        count,
        {label("observations", key, single): value for key, value in seen.items()}
        | {label("next_observations", key, single): value for key, value in (following or {}).items()}
        | {"actions": taken, **columns, "log_prob": behind, "episode": names},
    )
    if count == 0:
        raise BadInput("observations has no rows; expected at least one transition.")
    ends = episode_ends(columns["terminated"] | columns["truncated"], names)
    episode_of = np.concatenate([[0], np.cumsum(ends)[:-1]]).astype(np.int64)
    _all_finite(seen, following, single, episode_of, {"actions": taken, "log_prob": behind, **columns})
    if following is not None:
        require_successors(seen, following, single, ends, episode_of)
    keep, take = rows_kept(ends, columns["terminated"], following is not None)
    if not keep.any():
        raise BadInput(
            f"No transition is left: all {count} rows end an unfinished episode and have no next observation. "
            "Pass next_observations."
        )
    last = last_kept(keep, episode_of)
    done = columns["terminated"][keep]
    return Dataset(
        observations={
            key: laid_out(value, None if following is None else following[key], take)
            for key, value in seen.items()
        },
        actions=np.ascontiguousarray(taken[keep]),
        rewards=columns["rewards"][keep].astype(np.float64),
        terminated=done,
        # An episode that just stops was cut off by whoever recorded it.
        truncated=(columns["truncated"][keep] & last) | (last & ~done),
        offsets=np.concatenate([[0], np.flatnonzero(last) + 1]).astype(np.int64),
        log_prob=None if behind is None else behind[keep].astype(np.float64),
        cluster=label_of_episodes("cluster", cluster, episode_of, keep),
        behaviour=label_of_episodes("behaviour", behaviour, episode_of, keep),
        stack=frame_stack(stack),
        single=single,
        num_actions=num_actions,
        dropped=int(count - keep.sum()),
        source=source,
    )


def from_transitions(
    observations: Given,
    actions: ArrayLike,
    rewards: ArrayLike,
    next_observations: Given,
    terminated: ArrayLike,
    start_observations: Given | None = None,
    log_prob: ArrayLike | None = None,
    cluster: ArrayLike | None = None,
    num_actions: int | None = None,
    source: str = "transitions",
) -> Dataset:
    """Transitions (s, a, r, s', terminated) in no order; see `Dataset.from_transitions`."""
    seen, single = keyed("observations", observations)
    following = _following(next_observations, seen, single)
    taken, num_actions = logged_actions(actions, num_actions)
    columns = {"rewards": flat("rewards", rewards), "terminated": flags("terminated", terminated)}
    behind = None if log_prob is None else flat("log_prob", log_prob)
    own = None if cluster is None else labels("cluster", cluster)
    count = len(next(iter(seen.values())))
    same_rows(
        label("observations", next(iter(seen)), single),
        count,
        {label("observations", key, single): value for key, value in seen.items()}
        | {label("next_observations", key, single): value for key, value in following.items()}
        | {"actions": taken, **columns, "log_prob": behind, "cluster": own},
    )
    if count == 0:
        raise BadInput("observations has no rows; expected at least one transition.")
    _all_finite(seen, following, single, None, {"actions": taken, "log_prob": behind, **columns})
    return Dataset(
        observations={
            key: np.stack([value, following[key]], axis=1).reshape(2 * count, *value.shape[1:])
            for key, value in seen.items()
        },
        actions=np.ascontiguousarray(taken),
        rewards=columns["rewards"].astype(np.float64),
        terminated=columns["terminated"],
        truncated=~columns["terminated"],
        offsets=np.arange(count + 1, dtype=np.int64),
        log_prob=None if behind is None else behind.astype(np.float64),
        cluster=own,
        ordered=False,
        single=single,
        num_actions=num_actions,
        given_starts=None if start_observations is None else _starts(start_observations, seen, single),
        source=source,
    )


def from_episodes(
    episodes: Iterable[Mapping[str, Any]],
    stack: int = 1,
    num_actions: int | None = None,
    source: str = "episodes",
) -> Dataset:
    """Episodes with T + 1 observations each; see `Dataset.from_episodes`."""
    from bcrl.data.build.episodes import read_episode, same_kind

    read = [read_episode(number, episode) for number, episode in enumerate(episodes)]
    if not read:
        raise BadInput("episodes is empty; expected at least one episode.")
    for number, episode in enumerate(read[1:], start=1):
        same_kind(number, episode, read[0])
    taken, num_actions = logged_actions(np.concatenate([e.actions for e in read]), num_actions)
    return Dataset(
        observations={
            key: np.concatenate([e.observations[key] for e in read]) for key in read[0].observations
        },
        actions=taken,
        rewards=np.concatenate([e.rewards for e in read]),
        terminated=np.concatenate([e.terminated for e in read]),
        truncated=np.concatenate([e.truncated for e in read]),
        offsets=np.concatenate([[0], np.cumsum([len(e.rewards) for e in read])]).astype(np.int64),
        log_prob=None if read[0].log_prob is None else np.concatenate([e.log_prob for e in read]),  # type: ignore[misc]
        cluster=None if read[0].cluster is None else labels("cluster", np.asarray([e.cluster for e in read])),
        behaviour=None
        if read[0].behaviour is None
        else labels("behaviour", np.asarray([e.behaviour for e in read])),
        stack=frame_stack(stack),
        single=read[0].single,
        num_actions=num_actions,
        source=source,
    )


def _following(given: Given, seen: Mapping[str, Array], single: bool) -> dict[str, Array]:
    following, bare = keyed("next_observations", given)
    return _alike("next_observations", following, bare, seen, single)


def _starts(given: Given, seen: Mapping[str, Array], single: bool) -> dict[str, Array]:
    starts, bare = keyed("start_observations", given)
    starts = _alike("start_observations", starts, bare, seen, single)
    for key, value in starts.items():
        finite(label("start_observations", key, single), value)
        if len(value) == 0:
            raise BadInput(f"{label('start_observations', key, single)} has no rows; expected at least one.")
    return starts


def _alike(
    name: str, other: dict[str, Array], bare: bool, seen: Mapping[str, Array], single: bool
) -> dict[str, Array]:
    """Refuse arrays that do not look like the observations: keys, shape, type."""
    if bare != single or set(other) != set(seen):
        form = "one array" if single else f"a dict with the keys {sorted(seen)}"
        got = "one array" if bare else f"a dict with the keys {sorted(other)}"
        raise BadInput(f"{name} is {got}; observations is {form}. Give both in the same form.")
    for key, value in other.items():
        if value.shape[1:] != seen[key].shape[1:] or (value.dtype == np.uint8) != (
            seen[key].dtype == np.uint8
        ):
            raise BadInput(
                f"{label(name, key, single)} has shape {value.shape} and type {value.dtype}; "
                f"observations have {seen[key].shape} and {seen[key].dtype}."
            )
    return {key: other[key] for key in seen}


def _all_finite(
    seen: Mapping[str, Array],
    following: Mapping[str, Array] | None,
    single: bool,
    episode_of: Ints | None,
    columns: Mapping[str, Array | None],
) -> None:
    for name, group in (("observations", seen), ("next_observations", following or {})):
        for key, value in group.items():
            finite(label(name, key, single), value, episode_of)
    for name, column in columns.items():
        if column is not None:
            finite(name, column, episode_of)
