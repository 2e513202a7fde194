"""Coordinates in which the data's second moment is the identity.

A whitening is a matrix F with F F^T = Sigma^{-1} (a ridge or a pseudo-inverse where asked for). With theta =
F u the Euclidean norm of u is the L2(nu) norm of the function theta^T phi, and the LSPE operator A = discount
Sigma^{-1} C becomes

    B = discount F^T C F,    same spectral radius as A,    largest singular value of B = ||A||_Sigma.

Norms are therefore in the reward's unit and do not change when features are rescaled or mixed by an
invertible map.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import linalg

from bcrl.errors import BadInput
from bcrl.estimate import FloatArray

Inverse = Literal["cholesky", "pinv", "pinv32"]
DEFAULT_RIDGE = 1e-8


@dataclass(frozen=True, eq=False)
class Whitening:
    """F with F F^T = (Sigma + ridge I)^{-1}, or the pseudo-inverse of Sigma.

    Attributes:
        matrix: F, shape (d, rank).
        ridge: what was added to the diagonal of Sigma, in Sigma's unit.
        truncated: number of directions that a pseudo-inverse left out.
    """

    matrix: FloatArray
    ridge: float
    truncated: int

    def operator(self, c: FloatArray, discount: float) -> FloatArray:
        """B = discount F^T C F, shape (rank, rank)."""
        return np.ascontiguousarray(discount * (self.matrix.T @ c @ self.matrix))


def whiten(sigma: FloatArray, *, inverse: Inverse = "cholesky", ridge: float = DEFAULT_RIDGE) -> Whitening:
    """Whitening of a second moment.

    Args:
        sigma: E[phi phi^T], shape (d, d).
        inverse: "cholesky" with a ridge; "pinv" drops eigenvalues under d x 2.2e-16 of the largest; "pinv32"
            does what the authors' released code does: Sigma in float32, eigenvalues under d x 1.2e-7 of the
            largest dropped.
        ridge: for "cholesky", in units of the mean eigenvalue tr(Sigma) / d.
    """
    dim = len(sigma)
    scale = float(np.trace(sigma)) / dim
    if not np.isfinite(scale) or scale <= 0.0:
        raise BadInput(
            f"The features' mean square is {scale}; expected a finite number above 0. "
            "The representation collapsed or the features contain nan."
        )
    if inverse == "cholesky":
        return _cholesky(sigma, ridge * scale)
    precision = np.float32 if inverse == "pinv32" else np.float64
    eigenvalues, vectors = np.linalg.eigh(sigma.astype(precision))
    kept = eigenvalues > dim * np.finfo(precision).eps * eigenvalues[-1]
    matrix = vectors[:, kept].astype(np.float64) / np.sqrt(eigenvalues[kept].astype(np.float64))
    return Whitening(matrix, 0.0, int(dim - kept.sum()))


def _cholesky(sigma: FloatArray, ridge: float) -> Whitening:
    dim = len(sigma)
    try:
        lower = linalg.cholesky(sigma + ridge * np.eye(dim), lower=True)
    except linalg.LinAlgError:
        raise BadInput(
            f"The features' second moment is singular with ridge {ridge:.3g}. "
            "Raise ridge, or use the pinv solver."
        ) from None
    return Whitening(linalg.solve_triangular(lower, np.eye(dim), lower=True).T, ridge, 0)
