"""What a dataset holds: its arrays by name, their hash, and whether they fit together."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bcrl.data.dataset import LABELS, Array, Dataset

VERSION = 1  # of the format
COLUMNS = ("actions", "rewards", "terminated", "truncated", "offsets")
OPTIONAL = ("log_prob", *LABELS)
GROUPS = ("observations", "given_starts")
SETTINGS = ("stack", "ordered", "single", "num_actions", "dropped", "dropped_reward")


def content_hash(dataset: Dataset) -> str:
    """SHA-256 of everything that a method could read: names, types, shapes, bytes, stack.

    Not of where it came from.
    """
    digests = {}
    for name, array in named_arrays(dataset).items():
        digest = hashlib.sha256()
        for chunk in chunks(array):
            digest.update(chunk.data)
        digests[name] = digest.hexdigest()
    return combined_hash(dataset, digests)


def named_arrays(dataset: Dataset) -> dict[str, Array]:
    """Every array of a dataset under its name on disk."""
    arrays: dict[str, Array] = {}
    for group in GROUPS:
        arrays |= {f"{group}/{key}": value for key, value in (getattr(dataset, group) or {}).items()}
    for name in (*COLUMNS, *OPTIONAL):
        if getattr(dataset, name) is not None:
            arrays[name] = getattr(dataset, name)
    return arrays


def chunks(array: Array, size: int = 1 << 24) -> Iterator[Array]:
    """The array's bytes in order, about `size` at a time, as contiguous uint8."""
    row = max(1, array.dtype.itemsize * int(np.prod(array.shape[1:], dtype=np.int64)))
    step = max(1, size // row)
    for first in range(0, len(array), step):
        chunk = np.ascontiguousarray(array[first : first + step])
        yield chunk.view(np.uint8).reshape(-1) if chunk.size else chunk.astype(np.uint8)


def combined_hash(dataset: Dataset, digests: Mapping[str, str]) -> str:
    header = header_of(dataset)
    kind = {name: header[name] for name in ("stack", "ordered", "single", "num_actions")}
    text = json.dumps([kind, sorted((n, header["arrays"][n], d) for n, d in digests.items())], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def header_of(dataset: Dataset) -> dict[str, Any]:
    """The header without its hash."""
    return {
        "format": "bcrl dataset",
        "version": VERSION,
        **{name: getattr(dataset, name) for name in SETTINGS},
        "source": dataset.source,
        "episodes": dataset.num_episodes,
        "transitions": len(dataset),
        "arrays": {
            name: {"dtype": array.dtype.str, "shape": list(array.shape)}
            for name, array in named_arrays(dataset).items()
        },
    }


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
    if not all(dataset.actions.shape[1:]):
        yield f"actions have shape {dataset.actions.shape}; expected at least one number an action."
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
