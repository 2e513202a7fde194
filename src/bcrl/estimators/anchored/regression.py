"""Ridge regression from sums by fold: the ridge that predicts held-out units best, and weights without each fold."""

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from bcrl.estimate import FloatArray

RIDGES = tuple(10.0**power for power in range(-8, 3))


@dataclass(frozen=True, eq=False)
class Sums:
    """Of one fold: sum of x x^T (d, d), of x y (d,), of y^2, and the number of rows."""

    gram: FloatArray
    cross: FloatArray
    square: float
    count: int

    @classmethod
    def of(cls, x: FloatArray, y: FloatArray) -> "Sums":
        return cls(x.T @ x, x.T @ y, float(y @ y), len(y))

    @classmethod
    def zeros(cls, dim: int) -> "Sums":
        return cls(np.zeros((dim, dim)), np.zeros(dim), 0.0, 0)

    def about(self, x: FloatArray, y: FloatArray) -> "Sums":
        """The sums of the same x with another y."""
        return Sums(self.gram, x.T @ y, float(y @ y), self.count)

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            self.gram + other.gram,
            self.cross + other.cross,
            self.square + other.square,
            self.count + other.count,
        )


@dataclass(frozen=True, eq=False)
class Ridge:
    """What was fitted.

    Attributes:
        weights: on all rows, shape (d,).
        without: without each fold, shape (folds, d).
        ridge: in units of the mean eigenvalue.
        explained: share of y's mean square that held-out units confirm.
        total: sums over all folds.
        added: what was added to the diagonal of the mean of x x^T, shape (d,).
    """

    weights: FloatArray
    without: FloatArray
    ridge: float
    explained: float
    total: Sums
    added: FloatArray

    def inverse_times(self, vector: FloatArray) -> FloatArray:
        """(E[x x^T] + ridge)^-1 vector, shape (d,)."""
        return _solve(self.total, self.added, vector)


def fit(folds: list[Sums], free: int | None) -> Ridge:
    """The regression of y on x.

    Args:
        folds: sums of disjoint groups of units.
        free: number of the constant, which carries no ridge; None where there is none.
    """
    total = _add(folds)
    scale = float(np.trace(total.gram)) / total.count / len(total.cross)
    rest = [_add([part for k, part in enumerate(folds) if k != own] or folds) for own in range(len(folds))]
    best: tuple[float, float, FloatArray] | None = None
    for ridge in RIDGES:
        added = _diagonal(ridge * scale, len(total.cross), free)
        without = np.stack([_solve(part, added, part.cross / part.count) for part in rest])
        error = sum(_squared_error(part, theta) for part, theta in zip(folds, without, strict=True))
        if best is None or error < best[0]:
            best = (error, ridge, without)
    assert best is not None
    error, ridge, without = best
    added = _diagonal(ridge * scale, len(total.cross), free)
    weights = _solve(total, added, total.cross / total.count)
    explained = 1.0 - error / total.square if total.square > 0.0 else 1.0
    return Ridge(weights, without, ridge, explained, total, added)


def _add(parts: list[Sums]) -> Sums:
    return sum(parts[1:], start=parts[0])


def _diagonal(ridge: float, dim: int, free: int | None) -> FloatArray:
    added = np.full(dim, ridge)
    if free is not None:
        added[free] = 0.0
    return added


def _solve(part: Sums, added: FloatArray, right: FloatArray) -> FloatArray:
    """(mean of x x^T + ridge)^-1 right."""
    return np.asarray(linalg.solve(part.gram / part.count + np.diag(added), right, assume_a="sym"))


def _squared_error(part: Sums, theta: FloatArray) -> float:
    return part.square - 2.0 * float(part.cross @ theta) + float(theta @ part.gram @ theta)
