"""Options of a recipe (a method, a representation, or a part of one), checked when it is made.

    @dataclass(frozen=True)
    class Mine(Checked):
        steps: Count = 1000
        kind: Literal["a", "b"] = "a"

What a field may be is its annotation; its range stands there too, by the names below. Numbers of numpy
become Python's own and lists become tuples, so that a recipe prints, hashes and compares as if it had been
typed.
"""

import dataclasses
import math
import numbers
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from bcrl.errors import BadInput, did_you_mean


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers that a field takes: from `least` to `most`; `open_ends` names the ends that do not belong to
    it ("(" and ")", as in intervals).
    """

    least: float
    most: float = math.inf
    open_ends: str = ""

    def holds(self, value: float) -> bool:
        above = value > self.least if "(" in self.open_ends else value >= self.least
        below = value < self.most if ")" in self.open_ends else value <= self.most
        return above and below

    def __str__(self) -> str:
        low = f"{'above' if '(' in self.open_ends else 'at least'} {self.least:g}"
        high = f"{'below' if ')' in self.open_ends else 'at most'} {self.most:g}"
        return low if self.most == math.inf else f"{low} and {high}"


@dataclasses.dataclass(frozen=True)
class Rule:
    """What else a field's value has to be, and how a message says so."""

    words: str
    holds: Callable[[Any], bool]

    def __str__(self) -> str:
        return self.words


NOT_EMPTY = Rule("not empty", lambda several: len(several) > 0)
RISING = Rule("the first below the second", lambda pair: bool(pair[0] < pair[1]))

Count = Annotated[int, Range(1)]
CountOrZero = Annotated[int, Range(0)]
# Of a layer, of features, of an image: beyond this one matrix fills a machine.
Width = Annotated[int, Range(1, 65_536)]
Layers = Annotated[int, Range(1, 1_000)]
Positive = Annotated[float, Range(0, open_ends="(")]
NotNegative = Annotated[float, Range(0)]
# From 0 to 1: both ends, only the upper one, only the lower one, neither.
Share = Annotated[float, Range(0, 1)]
Rate = Annotated[float, Range(0, 1, "(")]
Decay = Annotated[float, Range(0, 1, ")")]
Fraction = Annotated[float, Range(0, 1, "()")]


class _Misfit(Exception):
    """A value does not fit an annotation."""


class Checked:
    """A recipe that refuses a field whose value does not fit its annotation."""

    def __post_init__(self) -> None:
        kind: type = type(self)
        for field in dataclasses.fields(self):  # type: ignore[arg-type]  # its subclasses are dataclasses
            value = getattr(self, field.name)
            fitted = option(kind.__name__, field.name, value, _hints(kind)[field.name])
            if fitted is not value:
                object.__setattr__(self, field.name, fitted)


def option(owner: str, name: str, value: Any, wanted: Any) -> Any:  # noqa: ANN401 - an annotation
    """The value as the annotation has it; `BadInput` in the owner's name where it does not fit."""
    try:
        return _fitted(value, wanted)
    except _Misfit:
        words = [word for one in _choices(wanted) if get_origin(one) is Literal for word in get_args(one)]
        near = did_you_mean(value, words) if isinstance(value, str) and words else ""
        hint = f" {near}" if near.startswith("Did") else ""
        raise BadInput(f"{owner}: {name}={_short(value)}; expected {_words(wanted)}.{hint}") from None


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _fitted(value: Any, wanted: Any) -> Any:  # noqa: ANN401 - one way out for each kind of annotation
    origin, arguments = get_origin(wanted), get_args(wanted)
    if wanted is Any:
        return value
    if origin in (Union, UnionType):
        return _first_fit(value, arguments)
    if origin is Annotated:
        number = _fitted(value, arguments[0])
        return _require(number, all(rule.holds(number) for rule in arguments[1:]))
    if origin is Literal:
        return _require(value, any(type(value) is type(word) and value == word for word in arguments))
    if origin is tuple:
        return _fitted_tuple(value, arguments)
    if wanted in (int, float):
        return _number(value, wanted)
    if origin is not None:  # Callable[...]
        return _require(value, callable(value))
    if getattr(wanted, "_is_protocol", False):
        return _require(value, all(callable(getattr(value, name, None)) for name in _methods(wanted)))
    return _require(value, isinstance(value, wanted))


def _require(value: Any, fits: bool) -> Any:  # noqa: ANN401
    if not fits:
        raise _Misfit
    return value


def _first_fit(value: Any, choices: tuple[Any, ...]) -> Any:  # noqa: ANN401
    for one in choices:
        try:
            return _fitted(value, one)
        except _Misfit:
            continue
    raise _Misfit


def _fitted_tuple(value: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:  # noqa: ANN401
    if not isinstance(value, tuple | list):
        raise _Misfit
    each = arguments[:1] * len(value) if arguments[1:] == (...,) else arguments
    if len(each) != len(value):
        raise _Misfit
    return tuple(_fitted(part, kind) for part, kind in zip(value, each, strict=True))


def _number(value: Any, wanted: type) -> Any:  # noqa: ANN401
    """A whole number, or a finite one; numpy's as Python's own. True is no number here."""
    kind = numbers.Integral if wanted is int else numbers.Real
    if isinstance(value, bool) or not isinstance(value, kind) or not math.isfinite(value):
        raise _Misfit
    if isinstance(value, int | float):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def _methods(protocol: type) -> list[str]:
    return [name for name, part in vars(protocol).items() if callable(part) and not name.startswith("_")]


def _choices(wanted: Any) -> tuple[Any, ...]:  # noqa: ANN401
    return get_args(wanted) if get_origin(wanted) in (Union, UnionType) else (wanted,)


def _short(value: Any) -> str:  # noqa: ANN401
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


_WORDS = {int: "a whole number", float: "a number", bool: "True or False", str: "text", Path: "a path"}


def _words(wanted: Any) -> str:  # noqa: ANN401 - one way out for each kind of annotation
    """An annotation as a reader of a message wants it."""
    origin, arguments = get_origin(wanted), get_args(wanted)
    if wanted in (None, NoneType):
        return "None"
    if origin in (Union, UnionType):
        *rest, last = [_words(one) for one in arguments]
        comma = "," if any("," in one for one in rest) else ""
        return f"{', '.join(rest)}{comma} or {last}"
    if origin is Annotated:
        return f"{_words(arguments[0])}, {', '.join(str(rule) for rule in arguments[1:])}"
    if origin is Literal:
        return f"{'one of ' if len(arguments) > 1 else ''}{', '.join(map(repr, arguments))}"
    if origin is tuple and arguments[1:] == (...,):
        return f"a tuple, each of it {_words(arguments[0])}"
    if origin is tuple:
        return f"a tuple of {len(arguments)}, each of it {_words(arguments[0])}"
    if origin is Callable or origin is not None:
        return "a function"
    if getattr(wanted, "_is_protocol", False):
        return f"a {wanted.__name__.lower()}, which has {', '.join(_methods(wanted))}"
    return _WORDS.get(wanted, f"{wanted.__name__}(...)")
