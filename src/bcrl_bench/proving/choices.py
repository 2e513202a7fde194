"""Policies that choose among many actions by softmax, and expectations over Gaussian contexts."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array

Table = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Softmax:
    """Probabilities proportional to exp(scores(observations)).

    Attributes:
        scores: observations to (n, num_actions).
    """

    scores: Callable[[Array], Table]
    reads: None = None

    def probabilities(self, observations: Array) -> Table:
        scores = self.scores(np.asarray(observations, dtype=np.float64))
        table = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(table / table.sum(axis=1, keepdims=True))


def gauss_hermite(dimension: int, order: int) -> tuple[Table, Table]:
    """Points (n, dimension) and weights (n,) that average smooth functions over a standard normal."""
    points, weights = np.polynomial.hermite_e.hermegauss(order)
    grid = np.meshgrid(*[points] * dimension, indexing="ij")
    mass = np.meshgrid(*[weights / weights.sum()] * dimension, indexing="ij")
    return np.stack([g.ravel() for g in grid], axis=1), np.prod([m.ravel() for m in mass], axis=0)
