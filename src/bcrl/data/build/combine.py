"""Mixtures of datasets. Frames stay where they are (`LazyRows`); everything smaller is copied."""

from collections.abc import Sequence
from itertools import count

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array, Dataset, is_pixels
from bcrl.data.frames import join_rows
from bcrl.errors import BadInput


def concatenate(datasets: Sequence[Dataset]) -> Dataset:
    """One dataset of all episodes, in order. All must hold the same kind of observations and actions.

    Equal cluster labels in two datasets mean the same cluster; episodes of a dataset without labels get one
    each. Equal behaviour labels mean the same logging policy; a dataset without labels beside one with them
    is of a policy of its own. Cohorts likewise.
    """
    if not datasets:
        raise BadInput("concatenate got no datasets; expected at least one.")
    first = datasets[0]
    for number, other in enumerate(datasets[1:], start=1):
        _same_kind(number, other, first)
    discrete = [d.num_actions for d in datasets if d.num_actions is not None]
    begins = np.cumsum([0, *(len(d) for d in datasets[:-1])])
    return Dataset(
        observations={key: _joined([d.observations[key] for d in datasets]) for key in first.observations},
        actions=np.concatenate([d.actions for d in datasets]),
        rewards=np.concatenate([d.rewards for d in datasets]),
        terminated=np.concatenate([d.terminated for d in datasets]),
        truncated=np.concatenate([d.truncated for d in datasets]),
        offsets=np.concatenate(
            [[0], *(d.offsets[1:] + b for d, b in zip(datasets, begins, strict=True))]
        ).astype(np.int64),
        log_prob=_optional(datasets, "log_prob"),
        cluster=_clusters(datasets),
        behaviour=_groups(datasets, "behaviour"),
        cohort=_groups(datasets, "cohort"),
        stack=first.stack,
        ordered=first.ordered,
        single=first.single,
        num_actions=max(discrete) if discrete else None,
        given_starts=_starts(datasets),
        dropped=sum(d.dropped for d in datasets),
        dropped_reward=sum(d.dropped_reward for d in datasets),
        source=" + ".join(d.source for d in datasets),
    )


def _same_kind(number: int, other: Dataset, first: Dataset) -> None:
    for name in ("stack", "ordered", "single", "discrete"):
        if getattr(other, name) != getattr(first, name):
            raise BadInput(
                f"dataset {number} has {name} = {getattr(other, name)}; dataset 0 has "
                f"{getattr(first, name)}. Only datasets of one kind can be joined."
            )
    if set(other.observations) != set(first.observations):
        raise BadInput(
            f"dataset {number} has the observation keys {sorted(other.observations)}; "
            f"dataset 0 has {sorted(first.observations)}."
        )
    pairs = {"actions": (other.actions, first.actions)}
    pairs |= {
        f"observations[{key!r}]": (other.observations[key], value)
        for key, value in first.observations.items()
    }
    for name, (own, expected) in pairs.items():
        if own.shape[1:] != expected.shape[1:] or (own.dtype == np.uint8) != (expected.dtype == np.uint8):
            raise BadInput(
                f"dataset {number} {name} has rows of shape {own.shape[1:]} and type {own.dtype}; "
                f"dataset 0 has {expected.shape[1:]} and {expected.dtype}."
            )


def _joined(arrays: list[Array]) -> Array:
    return join_rows(arrays) if is_pixels(arrays[0]) else np.concatenate([np.asarray(a) for a in arrays])


def _optional(datasets: Sequence[Dataset], name: str) -> NDArray[np.float64] | None:
    values = [getattr(d, name) for d in datasets]
    if any(value is None for value in values):
        if not all(value is None for value in values):
            raise BadInput(
                f"Some datasets have {name} and some do not; leave it out of all or give it to all."
            )
        return None
    return np.concatenate(values)


def _clusters(datasets: Sequence[Dataset]) -> Array | None:
    if all(d.cluster is None for d in datasets):
        return None
    named = [
        [f"dataset {number} episode {episode}" for episode in range(d.num_episodes)]
        if d.cluster is None
        else d.cluster
        for number, d in enumerate(datasets)
    ]
    return np.concatenate([np.asarray(labels) for labels in named])


def _groups(datasets: Sequence[Dataset], name: str) -> Array | None:
    given = [getattr(dataset, name) for dataset in datasets]
    if all(labels is None for labels in given):
        return None
    taken = {str(label) for labels in given if labels is not None for label in labels}
    free = (word for word in (f"unlabelled log {number}" for number in count(1)) if word not in taken)
    return np.concatenate(
        [
            np.full(dataset.num_episodes, next(free)) if labels is None else np.asarray(labels)
            for dataset, labels in zip(datasets, given, strict=True)
        ]
    )


def _starts(datasets: Sequence[Dataset]) -> dict[str, Array] | None:
    given = [d.given_starts for d in datasets if d.given_starts is not None]
    if len(given) < len(datasets):
        return None
    return {key: np.concatenate([starts[key] for starts in given]) for key in given[0]}
