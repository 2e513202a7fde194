"""The doctor on episodes: how they end, how many there are, whether they repeat, where they start."""

import hashlib
from collections.abc import Iterator

import numpy as np

from bcrl.data.dataset import Dataset, is_pixels
from bcrl.doctor.findings import Finding, step_place


def examine_episodes(dataset: Dataset) -> Iterator[Finding]:
    """Findings about whole episodes; of unordered transitions only what makes sense for them."""
    if not dataset.ordered:
        yield from _unordered(dataset)
        return
    yield from _inside(dataset)
    yield from _ends(dataset)
    yield from _counts(dataset)
    yield from _repeats(dataset)
    yield from _starts(dataset)
    if dataset.dropped:
        what = (
            f"{dataset.dropped} rows were dropped: the last of a truncated episode has no next observation."
        )
        yield Finding("note", what, "ends of episodes", "Pass next_observations to keep them.")


def _unordered(dataset: Dataset) -> Iterator[Finding]:
    if dataset.given_starts is None:
        what = "The transitions have no order, and no start states were given."
        yield Finding(
            "warning", what, "start_observations", "Pass start_observations, or starts= to evaluate."
        )
    if not dataset.terminated.any():
        yield Finding("note", "No transition terminates.", "terminated", "Right for a task that never ends.")
    if dataset.cluster is None:
        what = (
            "Each transition counts as independent, which flatters the interval if they come from episodes."
        )
        yield Finding("note", what, "cluster", "Pass cluster= with the episode or person of each transition.")


def _inside(dataset: Dataset) -> Iterator[Finding]:
    last = np.zeros(len(dataset), dtype=np.bool_)
    last[dataset.offsets[1:] - 1] = True
    for name in ("terminated", "truncated"):
        inside = np.flatnonzero(getattr(dataset, name) & ~last)
        if len(inside):
            what = f"{name} is set inside an episode, {len(inside)} times."
            yield Finding(
                "error", what, step_place(dataset, int(inside[0])), "Begin a new episode after that row."
            )
    silent = np.flatnonzero(last & ~dataset.terminated & ~dataset.truncated)
    if len(silent):
        what = (
            f"{len(silent)} episodes end with neither terminated nor truncated; they are taken as truncated."
        )
        yield Finding("note", what, step_place(dataset, int(silent[0])), "Mark their last row as truncated.")
    both = np.flatnonzero(dataset.terminated & dataset.truncated)
    if len(both):
        what = f"{len(both)} rows are both terminated and truncated; terminated counts, nothing follows them."
        yield Finding(
            "warning",
            what,
            step_place(dataset, int(both[0])),
            "Clear terminated where only the time ran out.",
        )


def _ends(dataset: Dataset) -> Iterator[Finding]:
    lengths, ended = dataset.lengths, dataset.terminated[dataset.offsets[1:] - 1]
    if dataset.num_episodes < 2:
        return
    if ended.all() and lengths.min() == lengths.max() and lengths.max() > 1:
        what = (
            f"ALL {len(lengths)} EPISODES ARE TERMINATED AFTER EXACTLY {lengths[0]} STEPS: probably a time "
            "limit, not the world's end. Every value will be too small in size, as if nothing came "
            "afterwards."
        )
        do = "Mark these rows truncated, not terminated, unless the task itself ends after so many steps."
        yield Finding("warning", what, f"row {lengths[0] - 1} of every episode", do)
    elif not ended.any() and lengths.max() > 1.2 * lengths.min():
        what = f"No episode terminates, and their lengths differ ({lengths.min()} to {lengths.max()})."
        do = (
            "If the world ended in some, mark their last row terminated: otherwise value is taken from "
            "beyond it."
        )
        yield Finding("warning", what, f"episode {int(lengths.argmin())}, last row", do)
    elif not ended.any():
        what = f"No episode terminates; all are cut off after about {int(np.median(lengths))} steps."
        yield Finding(
            "note", what, "terminated", "Right for a task that never ends: values reach past the cut."
        )
    longest = int((lengths == lengths.max()).sum())
    if ended.all() and lengths.min() != lengths.max() and longest > max(5, 0.2 * len(lengths)):
        what = f"{longest} of {len(lengths)} episodes end terminated at the longest length, {lengths.max()}."
        do = "If that is a time limit, mark those last rows truncated, not terminated."
        yield Finding("warning", what, f"episode {int(lengths.argmax())}, last row", do)


def _counts(dataset: Dataset) -> Iterator[Finding]:
    units = dataset.num_units
    word = "episodes" if dataset.cluster is None else "clusters"
    if units == 1:
        what = f"There is one independent unit ({word[:-1]}): no interval can be computed from it."
        yield Finding("warning", what, "the whole dataset", "Log more episodes, or mark where episodes end.")
    elif units < 10:
        what = f"There are only {units} independent {word}: intervals will be wide and rough."
        yield Finding("warning", what, "the whole dataset", f"Log more {word}; 30 or more is a usual floor.")
    if len(dataset) < 200:
        what = f"There are only {len(dataset)} transitions."
        yield Finding("warning", what, "the whole dataset", "Expect no trustworthy answer from so few.")


def _repeats(dataset: Dataset) -> Iterator[Finding]:
    first: dict[bytes, int] = {}
    repeats = []
    for episode in range(dataset.num_episodes):
        mark = _fingerprint(dataset, episode)
        if mark in first:
            repeats.append((first[mark], episode))
        first.setdefault(mark, episode)
    if repeats:
        what = (
            f"{len(repeats)} episodes repeat another one exactly: they add no information but shrink the "
            "interval."
        )
        where = "; ".join(f"episode {b} = episode {a}" for a, b in repeats[:3])
        yield Finding(
            "warning", what, where, "Remove the copies, unless the task and its start are deterministic."
        )


def _fingerprint(dataset: Dataset, episode: int) -> bytes:
    """Hash of an episode: all of its vectors, actions and rewards, and three of its frames."""
    steps, rows = dataset.episode_slices(episode)
    digest = hashlib.blake2b(np.ascontiguousarray(dataset.actions[steps]).tobytes(), digest_size=16)
    digest.update(np.ascontiguousarray(dataset.rewards[steps]).tobytes())
    for value in dataset.observations.values():
        some = np.linspace(rows.start, rows.stop - 1, 3).astype(np.int64)
        digest.update(np.ascontiguousarray(value[some] if is_pixels(value) else value[rows]).tobytes())
    return digest.digest()


def _starts(dataset: Dataset) -> Iterator[Finding]:
    if dataset.num_episodes < 2:
        return
    rows = dataset.start_rows[
        np.linspace(0, dataset.num_episodes - 1, min(dataset.num_episodes, 512)).astype(np.int64)
    ]
    starts = [np.asarray(value[rows]).reshape(len(rows), -1) for value in dataset.observations.values()]
    if all((start == start[0]).all() for start in starts):
        what = "All episodes start in the same observation: the value is for that one start."
        yield Finding("note", what, "first rows of episodes", "Right if the task always starts there.")
    if dataset.num_episodes == len(dataset) and len(dataset) > 1:
        what = "Every episode has one transition."
        do = "Right for one-step decisions; otherwise terminated or truncated is set in every row by mistake."
        yield Finding("warning", what, "every row", do)
