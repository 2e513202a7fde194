"""How far off the value may be: cluster-robust intervals from influence functions.

With G = Sigma - discount C, theta = G^{-1} b and TD errors delta_i = r_i + discount phi'_i^T theta - phi_i^T theta, the error of
theta is, to first order, sum_c G^{-1} (1/N) sum_{i in c} phi_i delta_i over independent clusters c (episodes, or the data's own
clusters). Start states sampled with the episodes enter the same cluster's influence; independent ones add their own
variance. One pass of O(N d).

A value of K iterations (a finite horizon) has another first-order error: with A = discount Sigma^{-1} C and
delta_{i,k} = r_i + discount phi'_i^T theta_{k-1} - phi_i^T theta_k it is

    (1/N) sum_i sum_k x0^T A^{K-k} Sigma^{-1} phi_i delta_{i,k}
        = (1/N) sum_i ( r_i z^T phi_i + discount phi_i^T P phi'_i - phi_i^T Q phi_i )

where P and Q are sums over k of outer products: O(K d^2) once, then O(N d rank), and their rank is small in practice.

Small samples: influences are scaled by sqrt(C / (C - 1)) N / (N - d) and the t quantile has Satterthwaite's degrees of freedom.
That choice was made on tabular, low-rank and quadratic worlds other than those of the coverage test (tests/linear).
Liang and Zeger (1986) for the sandwich; Satterthwaite (1946) for the degrees of freedom.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse, stats

from bcrl.errors import BadInput
from bcrl.estimate import FloatArray, Interval
from bcrl.linear.lspe import LSPESolution
from bcrl.linear.moments import check_transitions
from bcrl.linear.td import td_errors

_RANK_TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class ValueInterval:
    """A value with its sampling error.

    Attributes:
        value: the estimate.
        standard_error: square root of the sum of squares of `influence` plus the variance of independent start states.
        interval: its ends, level and degrees of freedom.
        influence: corrected contribution of each cluster to the error, shape (clusters,).
    """

    value: float
    standard_error: float
    interval: Interval
    influence: FloatArray


def interval(
    value: float,
    influence: FloatArray,
    *,
    trainings: int = 0,
    independent_variance: float = 0.0,
    level: float = 0.95,
) -> ValueInterval:
    """Interval from corrected influences.

    Args:
        value: the estimate.
        influence: contribution of each cluster, shape (clusters,), corrected for small samples (`correct`), and behind them
            those of the trainings.
        trainings: number of the latter.
        independent_variance: variance of the mean over start states that are independent of the data.
        level: confidence level.
    """
    error = float(np.sqrt(influence @ influence + independent_variance))
    degrees = degrees_of_freedom(influence, trainings)
    return ValueInterval(value, error, interval_around(value, error, degrees, level), influence)


def interval_around(value: float, error: float, degrees: float, level: float) -> Interval:
    """value +- t error, with the t quantile of this level."""
    half = quantile(level, degrees) * error
    return Interval(value - half, value + half, level, degrees)


def quantile(level: float, degrees: float = math.inf) -> float:
    """Standard errors to either side of a value that a two-sided interval of this level reaches."""
    return float(stats.t.ppf(0.5 + level / 2.0, degrees))


def degrees_of_freedom(influence: FloatArray, trainings: int = 0) -> float:
    """Satterthwaite's: 2 / (squared coefficient of variation of the variance estimate), from the influences' fourth moment.

    For C normal influences about C - 1; fewer when a few clusters carry the error. The last `trainings` entries are those of
    trainings, whose few degrees of freedom are pooled with the clusters' by Welch's formula.
    """
    luck = influence[len(influence) - trainings :]
    own = _of_clusters(influence[: len(influence) - trainings])
    spread, training_spread = (float(part @ part) for part in (influence[: len(influence) - trainings], luck))
    if training_spread == 0.0:
        return own
    few = max(1, int(np.count_nonzero(luck)) - 1)
    return (spread + training_spread) ** 2 / (spread**2 / own + training_spread**2 / few)


def _of_clusters(influence: FloatArray) -> float:
    clusters = len(influence)
    centred = influence - influence.mean()
    square = float(centred @ centred)
    if square == 0.0:
        return clusters - 1.0
    kurtosis = clusters * float((centred**4).sum()) / square**2
    return float(np.clip(2.0 * clusters / max(kurtosis - 1.0, 1e-9), 1.0, clusters - 1.0))


def correct(influence: FloatArray, *, count: int, dim: int) -> FloatArray:
    """Influences scaled for small samples: sqrt(C / (C - 1)) for the clusters, N / (N - d) for the fitted residuals.

    Args:
        influence: contribution of each cluster, first axis clusters.
        count: N, transitions.
        dim: d, features.
    """
    clusters = len(influence)
    if clusters < 2:
        raise BadInput(
            f"The data hold {clusters} independent unit(s); an interval needs at least 2. Log more episodes or clusters."
        )
    shrink = max(1.0 - dim / count, 0.1)
    return np.asarray(influence * (np.sqrt(clusters / (clusters - 1.0)) / shrink))


def cluster_scores(
    phi: NDArray[Any],
    next_phi: NDArray[Any],
    rewards: NDArray[Any],
    terminated: NDArray[Any],
    cluster: NDArray[Any],
    *,
    theta: FloatArray,
    discount: float,
    num_clusters: int,
    chunk: int = 16384,
) -> FloatArray:
    """Sum of phi_i delta_i over each cluster, shape (num_clusters, d); sums of shards add up.

    Args:
        phi: phi(s, a), shape (n, d).
        next_phi: phi(s', pi), shape (n, d).
        rewards: shape (n,).
        terminated: shape (n,).
        cluster: number of each transition's cluster, from 0, shape (n,).
        theta: the weights, shape (d,).
        discount: of the value.
        num_clusters: total number of clusters.
        chunk: rows at a time.
    """
    n, d = check_transitions(phi, next_phi, rewards, terminated)
    scores = np.zeros((num_clusters, d))
    for first in range(0, n, chunk):
        part = slice(first, min(first + chunk, n))
        rows = np.asarray(phi[part], dtype=np.float64)
        next_v = np.asarray(next_phi[part], dtype=np.float64) @ theta
        delta = td_errors(rewards[part], terminated[part], rows @ theta, next_v, discount)
        index = (cluster[part], np.arange(len(rows)))
        scores += sparse.csr_matrix((delta, index), shape=(num_clusters, len(rows))) @ rows
    return scores


@dataclass(frozen=True, eq=False)
class Sandwich:
    """Contribution of each cluster to the error of theta, corrected: rows^T rows is the covariance of theta."""

    rows: FloatArray

    def standard_error(self, features: FloatArray) -> FloatArray:
        """Standard error of features @ theta, shape (n,); sampling of start states not included."""
        return np.asarray(np.linalg.norm(np.asarray(features, dtype=np.float64) @ self.rows.T, axis=1))


def sandwich(solution: LSPESolution, scores: FloatArray, count: int) -> Sandwich:
    """Influence of each cluster on theta = (Sigma - discount C)^{-1} b.

    Args:
        solution: what `lspe` returned; its whitening and operator are used.
        scores: from `cluster_scores` at the weights whose error is wanted.
        count: N, transitions behind the scores.
    """
    matrix = solution.whitening.matrix
    system = np.eye(matrix.shape[1]) - solution.operator
    rows = linalg.solve(system, matrix.T @ scores.T / count).T @ matrix.T
    return Sandwich(correct(rows, count=count, dim=matrix.shape[1]))


def start_influence(start_values: FloatArray, cluster: NDArray[Any], num_clusters: int) -> FloatArray:
    """Contribution of each cluster's own start states to the error of their mean value, shape (num_clusters,)."""
    deviation = (start_values - start_values.mean()) / len(start_values)
    scale = np.sqrt(num_clusters / (num_clusters - 1.0)) if num_clusters > 1 else 1.0
    return np.asarray(scale * np.bincount(cluster, weights=deviation, minlength=num_clusters))


def start_variance(start_values: FloatArray) -> float:
    """Variance of the mean over start states that were sampled apart from the data; 0 for a single given start."""
    return float(np.var(start_values, ddof=1) / len(start_values)) if len(start_values) > 1 else 0.0


@dataclass(frozen=True, eq=False)
class HorizonInfluence:
    """First-order response of x0^T theta_K to each transition, as the bilinear form of the module's docstring.

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
        self,
        phi: NDArray[Any],
        next_phi: NDArray[Any],
        rewards: NDArray[Any],
        terminated: NDArray[Any],
        *,
        chunk: int = 16384,
    ) -> FloatArray:
        """Contribution of each transition, shape (n,); sum it by cluster, then `correct` it."""
        n, _ = check_transitions(phi, next_phi, rewards, terminated)
        out = np.empty(n)
        for first in range(0, n, chunk):
            part = slice(first, min(first + chunk, n))
            rows = np.asarray(phi[part], dtype=np.float64)
            following = np.asarray(next_phi[part], dtype=np.float64)
            ahead = np.einsum("nr,nr->n", rows @ self.following[0], following @ self.following[1])
            now = np.einsum("nr,nr->n", rows @ self.present[0], rows @ self.present[1])
            out[part] = rewards[part] * (rows @ self.reward) + np.where(terminated[part], 0.0, ahead) - now
        return np.asarray(out / self.count)


def horizon_influence(
    solution: LSPESolution, start_features: FloatArray, *, discount: float, count: int
) -> HorizonInfluence:
    """Influence of transitions on the value after the solution's K iterations.

    Args:
        solution: what `lspe` returned with any solver but "ball".
        start_features: x0, the mean of phi(s0, pi) over start states, shape (d,).
        discount: the one that `lspe` was called with.
        count: N, transitions behind the moments.
    """
    matrix, operator, steps = solution.whitening.matrix, solution.operator, solution.iterations
    forward = np.zeros((steps + 1, len(operator)))
    backward = np.empty((steps, len(operator)))
    backward[-1] = matrix.T @ start_features
    for k in range(steps):
        forward[k + 1] = solution.constant + operator @ forward[k]
    for k in range(steps - 1, 0, -1):
        backward[k - 1] = operator.T @ backward[k]
    following = _low_rank(discount * (backward.T @ forward[:-1]))
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
