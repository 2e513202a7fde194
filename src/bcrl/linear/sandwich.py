"""Each cluster's part of the error of LSPE's weights and of its value, to first order.

With G = Sigma - discount C, theta = G^{-1} b and TD errors
delta_i = r_i + discount phi'_i^T theta - phi_i^T theta, the error of theta is

    sum_c G^{-1} (1/N) sum_{i in c} phi_i delta_i

over independent clusters c (episodes, or the data's own clusters). One pass of O(N d).

A value of K iterations (a finite horizon) has another first-order error: with A = discount Sigma^{-1} C and
delta_{i,k} = r_i + discount phi'_i^T theta_{k-1} - phi_i^T theta_k it is

    (1/N) sum_i sum_k x0^T A^{K-k} Sigma^{-1} phi_i delta_{i,k}
        = (1/N) sum_i ( r_i z^T phi_i + discount phi_i^T P phi'_i - phi_i^T Q phi_i )

where P and Q are sums over k of outer products: O(K d^2) once, then O(N d rank), and their rank is small in
practice.

Small samples: contributions are scaled by sqrt(C / (C - 1)) N / (N - d). That choice was made on tabular,
low-rank and quadratic worlds other than those of the coverage test (tests/inference).
Liang and Zeger (1986).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from bcrl.errors import BadInput
from bcrl.estimate import FloatArray
from bcrl.linear.lspe import LSPESolution
from bcrl.linear.moments import check_transitions

_RANK_TOLERANCE = 1e-10
_CLUSTERS_AT_ONCE = 2**14


def correct(contributions: FloatArray, *, count: int, dim: int) -> FloatArray:
    """Scaled for small samples: sqrt(C / (C - 1)) for the clusters, N / (N - d) for the fitted residuals.

    Args:
        contributions: of each cluster to an error, first axis clusters.
        count: N, transitions.
        dim: d, features.
    """
    return np.asarray(contributions * _correction(len(contributions), count, dim))


def _correction(clusters: int, count: int, dim: int) -> float:
    if clusters < 2:
        raise BadInput(
            f"The data hold {clusters} independent unit(s); an interval needs at least 2. "
            "Log more episodes or clusters."
        )
    shrink = max(1.0 - dim / count, 0.1)
    return float(np.sqrt(clusters / (clusters - 1.0)) / shrink)


def cluster_scores(
    phi: FloatArray, delta: FloatArray, cluster: NDArray[np.int64], num_clusters: int
) -> FloatArray:
    """Sum of phi_i delta_i over each cluster, shape (num_clusters, d); sums over parts of the data add up.

    Args:
        phi: phi(s, a), shape (n, d).
        delta: TD errors, shape (n,).
        cluster: number of each transition's cluster, from 0, shape (n,).
        num_clusters: total number of clusters.
    """
    index = (cluster, np.arange(len(phi)))
    return np.asarray(sparse.csr_matrix((delta, index), shape=(num_clusters, len(phi))) @ phi)


def sandwich(solution: LSPESolution, scores: FloatArray, count: int) -> FloatArray:
    """Contribution of each cluster to the error of theta = (Sigma - discount C)^{-1} b, shape (clusters, d).

    It is corrected for small samples; rows^T rows is the covariance of theta.

    Args:
        solution: what `lspe` returned; its whitening and operator are used.
        scores: from `cluster_scores` at the weights whose error is wanted; their memory holds the result,
            where it may be written: two such arrays are the most that a long log needs at once.
        count: N, transitions behind the scores.
    """
    matrix = solution.whitening.matrix
    system = np.eye(matrix.shape[1]) - solution.operator
    rows = scores if scores.flags.writeable else np.empty_like(scores)
    for first in range(0, len(scores), _CLUSTERS_AT_ONCE):
        part = slice(first, first + _CLUSTERS_AT_ONCE)
        rows[part] = linalg.solve(system, matrix.T @ scores[part].T / count).T @ matrix.T
    rows *= _correction(len(scores), count, matrix.shape[1])
    return rows


def covariance_root(rows: FloatArray) -> FloatArray:
    """E with E E^T = rows^T rows, shape (d, k) with k at most d; `rows` from `sandwich`."""
    clusters, dim = rows.shape
    if clusters <= dim:
        return np.ascontiguousarray(rows.T)
    eigenvalues, vectors = np.linalg.eigh(rows.T @ rows)
    return np.asarray(vectors * np.sqrt(np.maximum(eigenvalues, 0.0)))


def dual_weights(solution: LSPESolution, x0: FloatArray) -> FloatArray:
    """u = (Sigma - discount C)^{-T} x0, shape (d,).

    u^T phi_i is how often the linear model expects the policy at transition i, up to a factor.
    """
    matrix = solution.whitening.matrix
    system = np.eye(matrix.shape[1]) - solution.operator
    return np.asarray(matrix @ np.linalg.lstsq(system.T, matrix.T @ x0, rcond=None)[0])


@dataclass(frozen=True, eq=False)
class HorizonInfluence:
    """Response of x0^T theta_K to each transition, as the bilinear form of the module's docstring.

    Attributes:
        reward: z, shape (d,).
        following: P = left @ right.T with the discount in it, both (d, rank).
        present: Q = left @ right.T, both (d, rank).
        count: N.
    """

    reward: FloatArray
    following: tuple[FloatArray, FloatArray]
    present: tuple[FloatArray, FloatArray]
    count: int

    def per_transition(
        self, phi: NDArray[Any], next_phi: NDArray[Any], rewards: NDArray[Any], terminated: NDArray[Any]
    ) -> FloatArray:
        """Contribution of each transition, shape (n,); sum it by cluster, then `correct` it."""
        check_transitions(phi, next_phi, rewards, terminated)
        ahead = np.einsum("nr,nr->n", phi @ self.following[0], next_phi @ self.following[1])
        now = np.einsum("nr,nr->n", phi @ self.present[0], phi @ self.present[1])
        total = rewards * (phi @ self.reward) + np.where(terminated, 0.0, ahead) - now
        return np.asarray(total / self.count)


def horizon_influence(solution: LSPESolution, x0: FloatArray, count: int) -> HorizonInfluence:
    """Influence of transitions on the value after the solution's K iterations.

    Args:
        solution: what `lspe` returned; for the solver "ball" this holds where the ball does not bind.
        x0: the mean of phi(s0, pi) over start states, shape (d,).
        count: N, transitions behind the moments.
    """
    matrix, operator, steps = solution.whitening.matrix, solution.operator, solution.iterations
    forward = np.zeros((steps + 1, len(operator)))
    backward = np.empty((steps, len(operator)))
    backward[-1] = matrix.T @ x0
    for k in range(steps):
        forward[k + 1] = solution.constant + operator @ forward[k]
    for k in range(steps - 1, 0, -1):
        backward[k - 1] = operator.T @ backward[k]
    following = _low_rank(solution.discount * (backward.T @ forward[:-1]))
    present = _low_rank(backward.T @ forward[1:])
    return HorizonInfluence(
        reward=matrix @ backward.sum(axis=0),
        following=(matrix @ following[0], matrix @ following[1]),
        present=(matrix @ present[0], matrix @ present[1]),
        count=count,
    )


def _low_rank(square: FloatArray) -> tuple[FloatArray, FloatArray]:
    left, values, right = np.linalg.svd(square)
    kept = values > _RANK_TOLERANCE * max(values[0], np.finfo(np.float64).tiny)
    return left[:, kept] * values[kept], right[kept].T
