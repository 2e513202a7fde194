"""What linear policy evaluation reads of the data: sums in one streaming pass, and TD errors.

With phi = phi(s, a), phi' = (1 - terminated) phi(s', pi) and reward r, everything that least squares policy
evaluation, its fixed point and its diagnostics need is a block of one Gram matrix:

    [phi, phi', r]^T [phi, phi', r]  =  | sigma    c           b             |
                                        | c^T      sigma_next  e             |
                                        | b^T      e^T         reward_square |

so a chunk costs one symmetric rank-k product, and shards merge by addition. The fields are sums, not means:
`a + b` of two shards equals one pass over both, up to the rounding of the additions. See Chang et al. (2022),
Algorithm 1; the authors' code goes over all the data again at every iteration instead.
"""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from bcrl.errors import BadInput
from bcrl.estimate import FloatArray


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over transitions; add two to merge them.

    Attributes:
        sigma: sum of phi phi^T, shape (d, d).
        c: sum of phi phi'^T, shape (d, d).
        b: sum of phi r, shape (d,).
        sigma_next: sum of phi' phi'^T, shape (d, d).
        e: sum of phi' r, shape (d,).
        reward_square: sum of r^2.
        count: number of transitions.
        reward: sum of r.
    """

    sigma: FloatArray
    c: FloatArray
    b: FloatArray
    sigma_next: FloatArray
    e: FloatArray
    reward_square: float
    count: int
    reward: float

    @property
    def dim(self) -> int:
        return len(self.b)

    @cached_property
    def mean(self) -> "Moments":
        """Of one average transition: E[phi phi^T], E[phi phi'^T], E[phi r], ...; its count is 1."""
        if self.count == 0:
            raise BadInput("Moments of no transitions have no mean; expected at least one transition.")
        n = float(self.count)
        return Moments(
            sigma=self.sigma / n,
            c=self.c / n,
            b=self.b / n,
            sigma_next=self.sigma_next / n,
            e=self.e / n,
            reward_square=self.reward_square / n,
            count=1,
            reward=self.reward / n,
        )

    def __add__(self, other: "Moments") -> "Moments":
        if self.dim != other.dim:
            raise BadInput(
                f"Moments of {self.dim} and of {other.dim} features cannot be merged; "
                "make both with the same representation."
            )
        return Moments(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    @classmethod
    def zeros(cls, dim: int) -> "Moments":
        """The moments of no data: the neutral element of `+`."""
        square = np.zeros((dim, dim))
        return cls(square, square, np.zeros(dim), square, np.zeros(dim), 0.0, 0, 0.0)

    @classmethod
    def from_features(
        cls,
        phi: NDArray[Any],
        next_phi: NDArray[Any],
        rewards: NDArray[Any],
        terminated: NDArray[Any],
        *,
        chunk: int = 4096,
    ) -> "Moments":
        """One pass over the transitions.

        Args:
            phi: phi(s, a), shape (n, d), float32 or float64.
            next_phi: phi(s', pi), already averaged over the target policy's actions, shape (n, d).
            rewards: shape (n,).
            terminated: the world ended, so s' has no value; shape (n,). Truncation is not termination.
            chunk: rows per product; bounds the memory to chunk x (2 d + 1) float64.
        """
        n, d = check_transitions(phi, next_phi, rewards, terminated)
        gram = np.zeros((2 * d + 1, 2 * d + 1))
        rows = np.empty((min(chunk, n), 2 * d + 1))
        for first in range(0, n, chunk):
            last = min(first + chunk, n)
            part = rows[: last - first]
            part[:, :d] = phi[first:last]
            part[:, d : 2 * d] = next_phi[first:last]
            part[terminated[first:last], d : 2 * d] = 0.0
            part[:, 2 * d] = rewards[first:last]
            gram += part.T @ part
        return cls(
            sigma=gram[:d, :d].copy(),
            c=gram[:d, d : 2 * d].copy(),
            b=gram[:d, 2 * d].copy(),
            sigma_next=gram[d : 2 * d, d : 2 * d].copy(),
            e=gram[d : 2 * d, 2 * d].copy(),
            reward_square=float(gram[2 * d, 2 * d]),
            count=n,
            reward=float(np.sum(rewards, dtype=np.float64)),
        )


def check_transitions(
    phi: NDArray[Any], next_phi: NDArray[Any], rewards: NDArray[Any], terminated: NDArray[Any]
) -> tuple[int, int]:
    """Number of transitions and of features, after checking that the four arrays belong together."""
    if phi.ndim != 2 or next_phi.shape != phi.shape:
        raise BadInput(
            f"Features of (s, a) have shape {phi.shape} and of (s', pi) {next_phi.shape}; "
            "expected two equal (n, d)."
        )
    n, d = phi.shape
    if rewards.shape != (n,) or terminated.shape != (n,):
        raise BadInput(
            f"Rewards have shape {rewards.shape} and terminated {terminated.shape}; "
            f"expected ({n},), one per transition."
        )
    if terminated.dtype != np.bool_:
        raise BadInput(
            f"terminated has type {terminated.dtype}; expected bool. Convert it with terminated.astype(bool)."
        )
    return n, d


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


def whiten(
    sigma: FloatArray,
    *,
    inverse: Inverse = "cholesky",
    ridge: float = DEFAULT_RIDGE,
    free: int | None = None,
) -> Whitening:
    """Whitening of a second moment.

    Args:
        sigma: E[phi phi^T], shape (d, d).
        inverse: "cholesky" with a ridge; "pinv" drops eigenvalues under d x 2.2e-16 of the largest; "pinv32"
            does what the authors' released code does: Sigma in float32, eigenvalues under d x 1.2e-7 of the
            largest dropped.
        ridge: for "cholesky", in units of the mean eigenvalue tr(Sigma) / d.
        free: a feature that "cholesky" puts no ridge on: the constant one.
    """
    dim = len(sigma)
    scale = float(np.trace(sigma)) / dim
    if not np.isfinite(scale) or scale <= 0.0:
        raise BadInput(
            f"The features' mean square is {scale}; expected a finite number above 0. "
            "The representation collapsed or the features contain nan."
        )
    if inverse == "cholesky":
        return _cholesky(sigma, ridge * scale, free)
    precision = np.float32 if inverse == "pinv32" else np.float64
    eigenvalues, vectors = np.linalg.eigh(sigma.astype(precision))
    kept = eigenvalues > dim * np.finfo(precision).eps * eigenvalues[-1]
    matrix = vectors[:, kept].astype(np.float64) / np.sqrt(eigenvalues[kept].astype(np.float64))
    return Whitening(matrix, 0.0, int(dim - kept.sum()))


def _cholesky(sigma: FloatArray, ridge: float, free: int | None) -> Whitening:
    dim = len(sigma)
    added = ridge * np.eye(dim)
    if free is not None:
        added[free, free] = 0.0
    try:
        lower = linalg.cholesky(sigma + added, lower=True)
    except linalg.LinAlgError:
        raise BadInput(
            f"The features' second moment is singular with ridge {ridge:.3g}. "
            "Raise ridge, or use the pinv solver."
        ) from None
    return Whitening(linalg.solve_triangular(lower, np.eye(dim), lower=True).T, ridge, 0)


def leverage(features: FloatArray, whitening: Whitening) -> FloatArray:
    """phi^T Sigma^{-1} phi of each row, (n,); averages d over the data, far above d is extrapolation."""
    white = np.asarray(features, dtype=np.float64) @ whitening.matrix
    return np.asarray(np.einsum("nd,nd->n", white, white))


def td_errors(
    rewards: NDArray[Any],
    terminated: NDArray[np.bool_],
    q: NDArray[Any],
    next_v: NDArray[Any],
    discount: float,
) -> FloatArray:
    """r + discount (1 - terminated) V(s') - Q(s, a) of each transition, shape (n,).

    Args:
        rewards: r, shape (n,).
        terminated: whether the world ended, so that s' has no value; shape (n,).
        q: Q(s, a), shape (n,).
        next_v: V(s'), shape (n,); read only where the world went on.
        discount: of the value.
    """
    return np.asarray(rewards + discount * np.where(terminated, 0.0, next_v) - q, dtype=np.float64)
