"""The same bits on every machine, for what a simulation feeds on.

A legged robot turns the last bit of an action into another episode, and BLAS libraries built for other
processors add up the last few products of a sum differently (multiply, then add; or both with one rounding).
Two such sums lie on a simulation's way: the first layer of an actor, whose inputs are as many as the robot
has joints, and the length of a random quaternion. Both are added up here, in the order and with the roundings
of the machine on which the shipped actors were measured (x86-64 with AVX-512). Wider layers have multiples of
four inputs, on which all x86-64 machines with AVX2 so far agree, and the simulator itself agrees everywhere
so far. Frames are drawn by the machine's own OpenGL and read by its own convolutions: what pixel actors do is
the same bits on the same kind of machine only.
"""

import contextlib
import functools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np


class FirstLayer:
    """W s for one state s: what is beyond a multiple of four columns by fused multiply-adds, short rows
    column by column.
    """

    def __init__(self, weight: np.ndarray) -> None:
        width = weight.shape[1]
        self.even = width - width % 4 if width >= 8 else 0
        self.body = np.ascontiguousarray(weight[:, : self.even])
        self.rest = [np.ascontiguousarray(column) for column in weight[:, self.even :].T]
        self.wide = [column.astype(np.float64) for column in self.rest]

    def __call__(self, state: np.ndarray) -> np.ndarray:
        if self.even == 0:
            columns = zip(self.rest, state, strict=True)
            return np.asarray(functools.reduce(np.add, (column * number for column, number in columns)))
        hidden = np.asarray(self.body.dot(state[: self.even]))
        if len(self.rest) == 0:
            return hidden
        left: list[float] = state[self.even :].tolist()
        if len(self.rest) == 1:
            return self._fused(0, left, hidden)
        more = self._fused(0, left, self.rest[1] * state[self.even + 1])
        return np.asarray(hidden + (more if len(self.rest) == 2 else self._fused(2, left, more)))

    def _fused(self, number: int, left: list[float], plus: np.ndarray) -> np.ndarray:
        """column * number + plus, rounded once: the product of two float32 is exact in float64."""
        total = self.wide[number] * left[number]
        total += plus
        return total.astype(np.float32)


@contextlib.contextmanager
def same_quaternions() -> Iterator[None]:
    """While dm_control draws a start state: it divides random orientations by `np.linalg.norm`."""
    usual = np.linalg.norm

    def norm(x: Any, *others: Any, **options: Any) -> Any:  # noqa: ANN401 - numpy's own signature
        if others or options or np.shape(x) != (4,):
            return usual(x, *others, **options)
        total = 0.0
        for number in np.asarray(x, dtype=np.float64).tolist():
            total = float(Fraction(number) ** 2 + Fraction(total))  # rounded once
        return math.sqrt(total)

    np.linalg.norm = norm
    try:
        yield
    finally:
        np.linalg.norm = usual
