"""JSON back into dataclasses, as far as it fits their type hints: what does not fit is named, and refused."""

import dataclasses
import math
import types
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np

from bcrl.errors import BadInput

_hints = cache(get_type_hints)


def conform(value: Any, kind: Any, where: str) -> Any:  # noqa: ANN401 - one line for each kind of hint
    """A value of JSON as a type hint wants it.

    Args:
        value: what the JSON holds.
        kind: a type hint: numbers, text, literals, enums, lists, mappings, arrays of numbers, dataclasses.
        where: names the value in the message.
    """
    origin = get_origin(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        return _union(value, kind, where)
    if dataclasses.is_dataclass(kind) or is_typeddict(kind):
        return _record(value, kind, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum(value, kind, where)
    if kind is float:
        return _number(value, where)
    if origin is Literal:
        return (
            value
            if value in get_args(kind)
            else _refuse(value, " or ".join(map(repr, get_args(kind))), where)
        )
    if origin is np.ndarray:
        numbers = value if isinstance(value, list) else _refuse(value, "a list of numbers", where)
        return np.asarray([_number(one, where) for one in numbers], dtype=np.float64)
    if origin in (list, tuple):
        items = value if isinstance(value, list) else _refuse(value, "a list", where)
        inner = get_args(kind)[0]
        return origin([conform(one, inner, f"{where}[{i}]") for i, one in enumerate(items)])
    if origin is not None and issubclass(origin, Mapping):
        table = value if isinstance(value, dict) else _refuse(value, "an object", where)
        return {name: conform(one, get_args(kind)[1], f"{where}.{name}") for name, one in table.items()}
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        _refuse(value, kind.__name__, where)
    return value


def _union(value: Any, kind: Any, where: str) -> Any:  # noqa: ANN401
    options = [one for one in get_args(kind) if one is not type(None)]
    if value is None:
        return None if len(options) < len(get_args(kind)) else _refuse(value, str(kind), where)
    for option in options[:-1]:
        try:
            return conform(value, option, where)
        except BadInput:
            continue  # the last option's message is the one that is told
    return conform(value, options[-1], where)


def _record(value: Any, kind: Any, where: str) -> Any:  # noqa: ANN401
    if not isinstance(value, dict):
        _refuse(value, "an object", where)
    hints = _hints(kind)
    unknown = sorted(set(value) - set(hints))
    if unknown:
        raise BadInput(f"{where} has the entry {unknown[0][:50]!r}, which bcrl does not write there.")
    read = {name: conform(one, hints[name], f"{where}.{name}") for name, one in value.items()}
    if is_typeddict(kind):
        lacking = sorted(kind.__required_keys__ - set(read))
        if lacking:
            raise BadInput(f"{where} lacks {lacking[0]!r}.")
        return read
    for field in dataclasses.fields(kind):
        needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if needed and field.name not in read:
            raise BadInput(f"{where} lacks {field.name!r}.")
    return kind(**read)


def _enum(value: Any, kind: type[Enum], where: str) -> Enum:  # noqa: ANN401
    try:
        return kind(value)
    except ValueError:
        raise _wrong(value, f"one of {', '.join(str(one.value) for one in kind)}", where) from None


def _number(value: Any, where: str) -> float:  # noqa: ANN401
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(value, "a number", where)
    if isinstance(value, int) and abs(value) > 2**63:
        return math.inf if value > 0 else -math.inf  # it may have more digits than a float can count
    return float(value) if isinstance(value, float) else value


def _refuse(value: Any, expected: str, where: str) -> Any:  # noqa: ANN401
    raise _wrong(value, expected, where)


def _wrong(value: Any, expected: str, where: str) -> BadInput:  # noqa: ANN401
    kind = {dict: "an object", list: "a list", type(None): "null"}.get(type(value))
    return BadInput(f"{where} is {kind or repr(value)[:60]}; expected {expected}.")
