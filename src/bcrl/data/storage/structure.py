"""Whether a dataset's arrays fit together: numbers of rows, offsets, types."""

from collections.abc import Iterator

import numpy as np

from bcrl.data.dataset import LABELS, Array, Dataset


def layout_errors(dataset: Dataset) -> Iterator[str]:
    """One sentence for each array that does not fit; nothing else should be read before they are gone."""
    offsets, count = dataset.offsets, len(dataset.rewards) if dataset.rewards.ndim else 0
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or len(offsets) < 2:
        yield (
            f"offsets has type {offsets.dtype} and shape {offsets.shape}; expected (E + 1,) whole numbers, E "
            ">= 1."
        )
        return
    if offsets[0] != 0 or offsets[-1] != count:
        yield f"offsets run from {offsets[0]} to {offsets[-1]}; expected 0 to {count}, the number of rewards."
    short = np.flatnonzero(np.diff(offsets) < 1)
    if len(short):
        yield f"episode {short[0]} has {np.diff(offsets)[short[0]]} transitions; expected at least 1."
    for name, (array, rows) in _expected(dataset, count).items():
        if array.ndim == 0 or len(array) != rows:
            yield f"{name} has shape {array.shape}; expected {rows} rows."
        elif name in ("rewards", "log_prob", "terminated", "truncated", *LABELS) and array.ndim != 1:
            yield f"{name} has shape {array.shape}; expected ({rows},)."
        elif array.dtype.kind not in ("biufU" if name in LABELS else "biuf"):
            wanted = "numbers or text" if name in LABELS else "numbers"
            yield f"{name} holds values of type {array.dtype}; expected {wanted}."
    for name in ("terminated", "truncated"):
        if getattr(dataset, name).dtype != np.bool_:
            yield f"{name} holds values of type {getattr(dataset, name).dtype}; expected booleans."
    if dataset.num_actions is not None:
        yield from _discrete_errors(dataset.actions, dataset.num_actions)


def _discrete_errors(actions: Array, num_actions: int) -> Iterator[str]:
    if actions.dtype.kind not in "iu" or actions.ndim != 1:
        yield (
            f"actions have type {actions.dtype} and shape {actions.shape}; with num_actions expected (N,) "
            "integers."
        )
    elif len(actions) and not 0 <= actions.min() <= actions.max() < num_actions:
        yield (
            f"actions lie in [{actions.min()}, {actions.max()}]; expected 0 to {num_actions - 1} "
            "(num_actions)."
        )


def _expected(dataset: Dataset, count: int) -> dict[str, tuple[Array, int]]:
    episodes = dataset.num_episodes
    sizes: dict[str, tuple[Array, int]] = {
        f"observations[{key!r}]": (value, count + episodes) for key, value in dataset.observations.items()
    }
    sizes |= {
        name: (getattr(dataset, name), count) for name in ("actions", "rewards", "terminated", "truncated")
    }
    if dataset.log_prob is not None:
        sizes["log_prob"] = (dataset.log_prob, count)
    for name in LABELS:
        if getattr(dataset, name) is not None:
            sizes[name] = (getattr(dataset, name), episodes)
    return sizes
