"""What the caller gave, as arrays of the right kind, or one line that names the culprit."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bcrl.data.dataset import Array, ObservationsLike, first_bad
from bcrl.errors import BadInput


def numbers(name: str, value: Any) -> Array:  # noqa: ANN401 - anything that a caller may pass
    """An array of numbers; text, Python objects, complex numbers and ragged lists are refused."""
    if value is None:
        raise BadInput(f"{name} is missing (None); expected an array of numbers.")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise BadInput(f"{name} is no array: {error}. Expected numbers, one row per transition.") from error
    if array.dtype.kind not in "biuf":
        raise BadInput(f"{name} holds values of type {array.dtype}; expected numbers or booleans.")
    if array.ndim == 0:
        raise BadInput(f"{name} is a single value; expected an array with one row per transition.")
    return array


def keyed(name: str, value: ObservationsLike) -> tuple[dict[str, Array], bool]:
    """Observations by key, and whether they came as one bare array."""
    single = not isinstance(value, Mapping)
    given = {"observation": value} if not isinstance(value, Mapping) else value
    if not given:
        raise BadInput(f"{name} is an empty dict; expected at least one key.")
    arrays = {}
    for key, item in given.items():
        if not isinstance(key, str) or not key:
            raise BadInput(f"{name} has the key {key!r}; expected keys that are non-empty text.")
        array = numbers(label(name, key, single), item)
        # Grey frames (n, H, W) are images of one channel.
        arrays[key] = array[..., None] if array.dtype == np.uint8 and array.ndim == 3 else array
    return arrays, single


def label(name: str, key: str, single: bool) -> str:
    """How to call one observation array in a message."""
    return name if single else f"{name}[{key!r}]"


def same_rows(reference: str, count: int, columns: Mapping[str, Array | None]) -> None:
    """Refuse columns whose number of rows differs from that of the reference."""
    for name, column in columns.items():
        if column is None or len(column) == count:
            continue
        hint = (
            " For T + 1 observations an episode use Dataset.from_episodes."
            if count == len(column) + 1
            else ""
        )
        raise BadInput(
            f"{name} has {len(column)} rows; {reference} has {count}. Expected one row per transition.{hint}"
        )


def flat(name: str, value: ArrayLike) -> Array:
    """A column of numbers, shape (n,); (n, 1) is taken too."""
    array = numbers(name, value)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise BadInput(f"{name} has shape {array.shape}; expected (n,).")
    return array


def flags(name: str, value: ArrayLike) -> NDArray[np.bool_]:
    """A column of yes and no: booleans, or numbers that are all 0 or 1."""
    array = flat(name, value)
    if array.dtype != np.bool_ and not np.isin(array, (0, 1)).all():
        row = int(np.flatnonzero(~np.isin(array, (0, 1)))[0])
        raise BadInput(f"{name} row {row} is {array[row]}; expected booleans, or 0 and 1.")
    return array.astype(np.bool_)


def logged_actions(value: ArrayLike, num_actions: int | None) -> tuple[Array, int | None]:
    """Actions, and the number of discrete ones: whole numbers of shape (n,) or (n, 1) are discrete."""
    array = numbers("actions", value)
    if not all(array.shape[1:]):
        raise BadInput(f"actions have shape {array.shape}; expected at least one number an action.")
    thin = array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1)
    if num_actions is None and array.dtype.kind == "f":
        return array, None
    if not thin:
        raise BadInput(
            f"actions hold {array.dtype} of shape {array.shape}; discrete actions have shape (n,). "
            "Number the combinations from 0, or pass floats for continuous actions."
        )
    array = array.reshape(len(array))
    if array.dtype.kind == "f":
        finite("actions", array)
        if (array != np.round(array)).any():
            row = int(np.flatnonzero(array != np.round(array))[0])
            raise BadInput(f"actions row {row} is {array[row]}; with num_actions expected whole numbers.")
    whole = array.astype(np.int64)
    return whole, _number_of_actions(whole, num_actions)


def _number_of_actions(whole: NDArray[np.int64], num_actions: int | None) -> int:
    if num_actions is not None and (
        isinstance(num_actions, bool) or int(num_actions) != num_actions or num_actions < 1
    ):
        raise BadInput(f"num_actions is {num_actions!r}; expected a whole number of at least 1.")
    least, most = (int(whole.min()), int(whole.max())) if len(whole) else (0, 0)
    if least < 0:
        row = int(np.argmin(whole))
        raise BadInput(f"actions row {row} is {least}; discrete actions are numbered from 0.")
    if num_actions is not None and most >= num_actions:
        row = int(np.argmax(whole))
        raise BadInput(
            f"actions row {row} is {most}; with num_actions={num_actions} expected 0 to {num_actions - 1}."
        )
    return most + 1 if num_actions is None else int(num_actions)


def finite(name: str, array: Array, episode_of: NDArray[np.int64] | None = None) -> None:
    """Refuse NaN and infinity, saying where."""
    row = first_bad(array)
    if row is None:
        return
    where = f"row {row}" if episode_of is None else f"row {row} (episode {int(episode_of[row])})"
    kind = "NaN" if np.isnan(np.asarray(array[row])).any() else "infinity"
    raise BadInput(
        f"{name} {where} holds {kind}; expected finite numbers. Fill it in or leave that episode out."
    )


def labels(name: str, value: ArrayLike) -> Array:
    """A column of labels: whole numbers or text."""
    array = np.asarray(value)
    if array.dtype.kind == "O":
        if not all(isinstance(item, str) for item in array.reshape(-1)):
            raise BadInput(f"{name} holds Python objects; expected whole numbers or text.")
        array = array.astype(np.str_)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "biufU":
        raise BadInput(
            f"{name} has type {array.dtype} and shape {array.shape}; expected (n,) whole numbers or text."
        )
    if array.dtype.kind == "f":
        finite(name, array)
    return array


def frame_stack(stack: int) -> int:
    """The number of frames to stack, checked."""
    if isinstance(stack, bool) or not isinstance(stack, int | np.integer) or stack < 1:
        raise BadInput(f"stack is {stack!r}; expected a whole number of at least 1.")
    return int(stack)
