"""Plain arrays, one row per transition -> `Dataset`.

Rows come as a user has them. A transition without a known next observation (the last row of a truncated or
unfinished episode when `next_observations` is not given) cannot be learned from and is dropped; the number is
kept in `Dataset.dropped`. Where nobody marked how an episode ended, `ends` says so (ends.py). The
observation after the world's end is never used: the last one is repeated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bcrl.data.build.boundaries import (
    episode_ends,
    label_of_episodes,
    last_kept,
    lay_out,
    require_successors,
    rows_kept,
)
from bcrl.data.build.ends import Lost, answered
from bcrl.data.build.inputs import (
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
from bcrl.data.dataset import Array, Dataset, Ends, ObservationsLike
from bcrl.errors import BadInput

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class LoggedArrays:
    """Arguments of `Dataset.from_arrays` and `from_transitions`, which explain them; not yet checked."""

    observations: ObservationsLike
    actions: ArrayLike
    rewards: ArrayLike
    terminated: ArrayLike
    truncated: ArrayLike | None = None
    next_observations: ObservationsLike | None = None
    start_observations: ObservationsLike | None = None
    log_prob: ArrayLike | None = None
    episode: ArrayLike | None = None
    cluster: ArrayLike | None = None
    behaviour: ArrayLike | None = None
    cohort: ArrayLike | None = None
    stack: int = 1
    num_actions: int | None = None
    ends: Ends | None = None
    marked: bool = False  # rows before these, of the same log, marked where episodes end
    source: str = "arrays"


def from_arrays(given: LoggedArrays) -> Dataset:
    """Episodes laid end to end; see `Dataset.from_arrays`."""
    dataset, lost = build_block(given)
    if dataset is None:
        raise BadInput(
            f"No transition is left: all {lost.rows} rows end an unfinished episode and have no next "
            "observation. Pass next_observations."
        )
    return replace(dataset, dropped=lost.rows, dropped_reward=lost.reward)


def build_block(given: LoggedArrays) -> tuple[Dataset | None, Lost]:
    """Whole episodes of a log (None where no transition of them is left), and what was left out."""
    rows = _check(given, "episode")
    ends = episode_ends(rows.terminated | rows.truncated, rows.labels)
    episode_of = np.concatenate([[0], np.cumsum(ends)[:-1]]).astype(np.int64)
    _require_finite(rows, episode_of)
    following = rows.next_observations
    if following is not None:
        require_successors(rows.observations, following, rows.single, ends, episode_of)
    terminated, unmarked = answered(
        given.ends,
        ends,
        rows.terminated,
        rows.truncated,
        rows.rewards,
        labelled=rows.labels is not None,
        marked=given.marked,
    )
    drop = unmarked if given.ends == "drop" else np.zeros_like(unmarked)
    keep, take = rows_kept(ends, terminated, following is not None, drop)
    lost = Lost.of(rows.rewards, keep, unmarked)
    if not keep.any():
        return None, lost
    last = last_kept(keep, episode_of)
    terminated = terminated[keep]
    dataset = Dataset(
        observations={
            key: lay_out(value, None if following is None else following[key], take)
            for key, value in rows.observations.items()
        },
        actions=np.ascontiguousarray(rows.actions[keep]),
        rewards=rows.rewards[keep].astype(np.float64),
        terminated=terminated,
        # An episode that just stops was cut off by whoever recorded it.
        truncated=(rows.truncated[keep] & last) | (last & ~terminated),
        offsets=np.concatenate([[0], np.flatnonzero(last) + 1]).astype(np.int64),
        log_prob=None if rows.log_prob is None else rows.log_prob[keep].astype(np.float64),
        cluster=label_of_episodes("cluster", given.cluster, episode_of, keep),
        behaviour=label_of_episodes("behaviour", given.behaviour, episode_of, keep),
        cohort=label_of_episodes("cohort", given.cohort, episode_of, keep),
        stack=frame_stack(given.stack),
        single=rows.single,
        num_actions=rows.num_actions,
        source=given.source,
    )
    return dataset, lost


def from_transitions(given: LoggedArrays) -> Dataset:
    """Transitions (s, a, r, s', terminated) in no order; see `Dataset.from_transitions`."""
    if given.next_observations is None:
        raise BadInput("next_observations is missing (None); expected an array of numbers.")
    rows = _check(given, "cluster")
    _require_finite(rows, None)
    following = rows.next_observations
    assert following is not None
    count = len(rows.rewards)
    return Dataset(
        observations={
            key: np.stack([value, following[key]], axis=1).reshape(2 * count, *value.shape[1:])
            for key, value in rows.observations.items()
        },
        actions=np.ascontiguousarray(rows.actions),
        rewards=rows.rewards.astype(np.float64),
        terminated=rows.terminated,
        truncated=~rows.terminated,
        offsets=np.arange(count + 1, dtype=np.int64),
        log_prob=None if rows.log_prob is None else rows.log_prob.astype(np.float64),
        cluster=rows.labels,
        ordered=False,
        single=rows.single,
        num_actions=rows.num_actions,
        given_starts=_starts(given.start_observations, rows),
        source=given.source,
    )


@dataclass(frozen=True, eq=False)
class _Rows:
    """Arrays of the right kind and of equal length; `labels` is the column that `_check` was asked for."""

    observations: dict[str, Array]
    next_observations: dict[str, Array] | None
    single: bool
    actions: Array
    num_actions: int | None
    rewards: Array
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    log_prob: Array | None
    labels: Array | None


def _check(given: LoggedArrays, label_column: str) -> _Rows:
    """Every column as an array of its kind, one row per transition in each."""
    observations, single = keyed("observations", given.observations)
    actions, num_actions = logged_actions(given.actions, given.num_actions)
    rewards, terminated = flat("rewards", given.rewards), flags("terminated", given.terminated)
    truncated = flags("truncated", np.zeros_like(terminated) if given.truncated is None else given.truncated)
    following = None
    if given.next_observations is not None:
        following = _like("next_observations", given.next_observations, observations, single)
    log_prob = None if given.log_prob is None else flat("log_prob", given.log_prob)
    column = getattr(given, label_column)
    own = None if column is None else labels(label_column, column)
    rows = _Rows(
        observations,
        following,
        single,
        actions,
        num_actions,
        rewards,
        terminated,
        truncated,
        log_prob,
        own,
    )
    count = len(next(iter(observations.values())))
    columns = _named_observations(rows) | _named_columns(rows) | {label_column: own}
    same_rows(label("observations", next(iter(observations)), single), count, columns)
    if count == 0:
        raise BadInput("observations has no rows; expected at least one transition.")
    return rows


def _named_observations(rows: _Rows) -> dict[str, Array | None]:
    groups = (("observations", rows.observations), ("next_observations", rows.next_observations or {}))
    return {label(name, key, rows.single): value for name, group in groups for key, value in group.items()}


def _named_columns(rows: _Rows) -> dict[str, Array | None]:
    names = ("actions", "rewards", "terminated", "truncated", "log_prob")
    return {name: getattr(rows, name) for name in names}


def _require_finite(rows: _Rows, episode_of: Ints | None) -> None:
    for name, column in (_named_observations(rows) | _named_columns(rows)).items():
        if column is not None:
            finite(name, column, episode_of)


def _starts(given: ObservationsLike | None, rows: _Rows) -> dict[str, Array] | None:
    if given is None:
        return None
    starts = _like("start_observations", given, rows.observations, rows.single)
    for key, value in starts.items():
        finite(label("start_observations", key, rows.single), value)
        if len(value) == 0:
            raise BadInput(
                f"{label('start_observations', key, rows.single)} has no rows; expected at least one."
            )
    return starts


def _like(
    name: str, given: ObservationsLike, observations: Mapping[str, Array], single: bool
) -> dict[str, Array]:
    """Arrays by key; those that do not look like the observations (keys, shape, type) are refused."""
    other, bare = keyed(name, given)
    if bare != single or set(other) != set(observations):
        form = "one array" if single else f"a dict with the keys {sorted(observations)}"
        got = "one array" if bare else f"a dict with the keys {sorted(other)}"
        raise BadInput(f"{name} is {got}; observations is {form}. Give both in the same form.")
    for key, value in other.items():
        expected = observations[key]
        if value.shape[1:] != expected.shape[1:] or (value.dtype == np.uint8) != (expected.dtype == np.uint8):
            raise BadInput(
                f"{label(name, key, single)} has shape {value.shape} and type {value.dtype}; "
                f"observations have {expected.shape} and {expected.dtype}."
            )
    return {key: other[key] for key in observations}
