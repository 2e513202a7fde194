"""Ridge regression from sums by fold: what predicts held-out units best, and weights without each fold.

Several y may be regressed on the same x. One of them is the judge: the y and the ridge are chosen whose
predictions come closest to the judge on units that they were not fitted on, and of such ridges the smallest
that loses at most a tenth of what the best explains: means over many rows forgive noise, not bias.
"""

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from bcrl.estimate import FloatArray

RIDGES = tuple(10.0**power for power in range(-6, 3))
_LOST = 0.1


@dataclass(frozen=True, eq=False)
class Sums:
    """Of one fold: sum of x x^T (d, d), of x y (d, m), of y^2 (m,), and the number of rows."""

    gram: FloatArray
    cross: FloatArray
    square: FloatArray
    count: int

    @classmethod
    def of(cls, x: FloatArray, y: FloatArray) -> "Sums":
        return cls(x.T @ x, x.T @ y, np.square(y).sum(axis=0), len(y))

    @classmethod
    def zeros(cls, dim: int, columns: int) -> "Sums":
        return cls(np.zeros((dim, dim)), np.zeros((dim, columns)), np.zeros(columns), 0)

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            self.gram + other.gram,
            self.cross + other.cross,
            self.square + other.square,
            self.count + other.count,
        )

    def only(self, column: int) -> "Sums":
        """The sums of one y."""
        return Sums(self.gram, self.cross[:, [column]], self.square[[column]], self.count)


@dataclass(frozen=True, eq=False)
class Ridge:
    """What was fitted.

    Attributes:
        weights: on all rows, shape (d,).
        without: without each fold, shape (folds, d).
        column: number of the y that was chosen.
        ridge: in units of the mean eigenvalue.
        explained: share of the judge's mean square that is predicted on held-out units.
        total: sums over all folds.
        added: what was added to the diagonal of the mean of x x^T, shape (d,).
    """

    weights: FloatArray
    without: FloatArray
    column: int
    ridge: float
    explained: float
    total: Sums
    added: FloatArray

    def inverse_times(self, vector: FloatArray) -> FloatArray:
        """(E[x x^T] + ridge)^-1 vector, shape (d,)."""
        return _solve(self.total, self.added, vector)


def fit(folds: list[Sums], free: int | None, judge: int = -1, ridges: tuple[float, ...] = RIDGES) -> Ridge:
    """The regression.

    Args:
        folds: sums of disjoint groups of units.
        free: number of the constant, which carries no ridge; None where there is none.
        judge: number of the y that predictions are held against.
        ridges: to choose from, rising, in units of the mean eigenvalue.
    """
    total = _add(folds)
    scale = float(np.trace(total.gram)) / total.count / len(total.cross)
    rest = [_add([part for k, part in enumerate(folds) if k != own] or folds) for own in range(len(folds))]
    tried = []
    for ridge in ridges:
        added = _diagonal(ridge * scale, len(total.cross), free)
        without = np.stack([_solve(part, added, part.cross / part.count) for part in rest])
        pairs = zip(folds, without, strict=True)
        errors = np.sum([_squared_errors(part, each, judge) for part, each in pairs], axis=0)
        column = int(np.argmin(errors))
        tried.append((float(errors[column]), ridge, column, without[:, :, column]))
    size, least = float(total.square[judge]), min(error for error, *_ in tried)
    limit = least + _LOST * max(size - least, 0.0)
    error, ridge, column, chosen = next(one for one in tried if one[0] <= limit)
    added = _diagonal(ridge * scale, len(total.cross), free)
    weights = _solve(total, added, total.cross[:, column] / total.count)
    return Ridge(weights, chosen, column, ridge, 1.0 - error / size if size > 0.0 else 1.0, total, added)


def _add(parts: list[Sums]) -> Sums:
    return sum(parts[1:], start=parts[0])


def _diagonal(ridge: float, dim: int, free: int | None) -> FloatArray:
    added = np.full(dim, ridge)
    if free is not None:
        added[free] = 0.0
    return added


def _solve(part: Sums, added: FloatArray, right: FloatArray) -> FloatArray:
    """(mean of x x^T + ridge)^-1 right."""
    return np.asarray(linalg.solve(part.gram / part.count + np.diag(added), right, assume_a="pos"))


def _squared_errors(part: Sums, thetas: FloatArray, judge: int) -> FloatArray:
    """Of each column's predictions against the judge, added up over the fold, shape (m,)."""
    fitted = np.einsum("dm,dm->m", thetas, part.gram @ thetas)
    return np.asarray(part.square[judge] - 2.0 * part.cross[:, judge] @ thetas + fitted)
