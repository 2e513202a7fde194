"""Episodes as dicts -> `Dataset`: each holds T + 1 observations, T
actions, T rewards, and says how it ended."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data.build import inputs
from bcrl.data.dataset import LABELS, Array, Dataset
from bcrl.errors import BadInput, did_you_mean

KEYS = ("observations", "actions", "rewards", "terminated", "truncated", "log_prob", *LABELS)


@dataclass(frozen=True, eq=False)
class Episode:
    """Checked arrays of one episode; `terminated` and `truncated` are
    columns, true in the last row or nowhere."""

    observations: dict[str, Array]
    actions: Array
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    log_prob: NDArray[np.float64] | None
    cluster: str | int | None
    behaviour: str | int | None
    cohort: str | int | None
    single: bool


def from_episodes(
    episodes: Iterable[Mapping[str, Any]],
    stack: int = 1,
    num_actions: int | None = None,
    source: str = "episodes",
) -> Dataset:
    """Episodes with T + 1 observations each; see `Dataset.from_episodes`."""
    read = [_read_episode(number, episode) for number, episode in enumerate(episodes)]
    if not read:
        raise BadInput("episodes is empty; expected at least one episode.")
    for number, episode in enumerate(read[1:], start=1):
        _require_same_kind(number, episode, read[0])
    actions, num_actions = inputs.logged_actions(np.concatenate([e.actions for e in read]), num_actions)
    log_prob = [e.log_prob for e in read if e.log_prob is not None]
    labels: dict[str, Any] = {
        name: inputs.labels(name, np.asarray([getattr(episode, name) for episode in read]))
        for name in LABELS
        if getattr(read[0], name) is not None
    }
    return Dataset(
        observations={
            key: np.concatenate([e.observations[key] for e in read]) for key in read[0].observations
        },
        actions=actions,
        rewards=np.concatenate([e.rewards for e in read]),
        terminated=np.concatenate([e.terminated for e in read]),
        truncated=np.concatenate([e.truncated for e in read]),
        offsets=np.concatenate([[0], np.cumsum([len(e.rewards) for e in read])]).astype(np.int64),
        log_prob=np.concatenate(log_prob) if log_prob else None,
        **labels,
        stack=inputs.frame_stack(stack),
        single=read[0].single,
        num_actions=num_actions,
        source=source,
    )


def _read_episode(number: int, given: Mapping[str, Any]) -> Episode:
    """Check one episode; `number` is for messages.

    Args:
        number: which episode this is.
        given: `observations` (T + 1 rows, an array or a dict), `actions` (T), `rewards` (T), `terminated` (T
            flags, or one for the end), and optionally `truncated`, `log_prob` (T), `cluster`, `behaviour` and
            `cohort` (one label each).
    """
    if not isinstance(given, Mapping):
        raise BadInput(
            f"episode {number} is a {type(given).__name__}; expected a dict with {', '.join(KEYS[:4])}."
        )
    for key in given:
        if key not in KEYS:
            raise BadInput(f"episode {number} has the unknown key {key!r}. {did_you_mean(str(key), KEYS)}")
    for key in KEYS[:4]:
        if given.get(key) is None:
            raise BadInput(f"episode {number} lacks {key!r}; got {sorted(map(str, given))}.")
    observations, single = inputs.keyed(f"episode {number} observations", given["observations"])
    actions = inputs.numbers(f"episode {number} actions", given["actions"])
    rewards = inputs.flat(f"episode {number} rewards", given["rewards"])
    log_prob = (
        None
        if given.get("log_prob") is None
        else inputs.flat(f"episode {number} log_prob", given["log_prob"])
    )
    length = len(rewards)
    if length == 0:
        raise BadInput(f"episode {number} has no transitions; leave it out.")
    sizes = {"actions": actions} | ({} if log_prob is None else {"log_prob": log_prob})
    for name, column in sizes.items():
        if len(column) != length:
            raise BadInput(f"episode {number} {name} has {len(column)} rows; rewards has {length}.")
    for key, value in observations.items():
        name = inputs.label(f"episode {number} observations", key, single)
        if len(value) != length + 1:
            raise BadInput(f"{name} has {len(value)} rows; expected {length + 1}, one more than rewards.")
        inputs.finite(name, value)
    for name, column in (sizes | {"rewards": rewards}).items():
        inputs.finite(f"episode {number} {name}", column)
    terminated = _closing(number, "terminated", given["terminated"], length)
    truncated = _closing(number, "truncated", given.get("truncated", False), length)
    truncated[-1] |= not terminated[-1]
    return Episode(
        observations,
        actions,
        rewards.astype(np.float64),
        terminated,
        truncated,
        None if log_prob is None else log_prob.astype(np.float64),
        given.get("cluster"),
        given.get("behaviour"),
        given.get("cohort"),
        single,
    )


def _require_same_kind(number: int, episode: Episode, first: Episode) -> None:
    """Refuse an episode that does not fit episode 0: keys, shapes, types, optional columns."""
    if set(episode.observations) != set(first.observations) or episode.single != first.single:
        raise BadInput(
            f"episode {number} has the observation keys {sorted(episode.observations)}; "
            f"episode 0 has {sorted(first.observations)}."
        )
    pairs = {"actions": (episode.actions, first.actions)} | {
        inputs.label("observations", key, first.single): (episode.observations[key], value)
        for key, value in first.observations.items()
    }
    for name, (own, other) in pairs.items():
        if own.shape[1:] != other.shape[1:] or own.dtype != other.dtype:
            raise BadInput(
                f"episode {number} {name} has rows of shape {own.shape[1:]} and type {own.dtype}; "
                f"episode 0 has {other.shape[1:]} and {other.dtype}."
            )
    for name in ("log_prob", *LABELS):
        if (getattr(episode, name) is None) != (getattr(first, name) is None):
            raise BadInput(
                f"episode {number} and episode 0 differ in having {name!r}; give it to all or to none."
            )


def _closing(number: int, name: str, value: Any, length: int) -> NDArray[np.bool_]:  # noqa: ANN401
    """A column of flags that may be true in the last row only; one flag stands for the last row."""
    if np.ndim(value) == 0:
        column = np.zeros(length, dtype=np.bool_)
        column[-1] = inputs.flags(f"episode {number} {name}", [value])[0]
        return column
    column = inputs.flags(f"episode {number} {name}", value).copy()
    if len(column) != length:
        raise BadInput(f"episode {number} {name} has {len(column)} rows; rewards has {length}.")
    if column[:-1].any():
        row = int(np.argmax(column))
        raise BadInput(
            f"episode {number} is {name} at row {row} of {length} and goes on; end the episode there."
        )
    return column
