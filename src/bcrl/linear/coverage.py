"""How well logged data cover what is asked of them: leverage of rows, kappa(p0) of a policy's occupancy.

    leverage(phi) = phi^T Sigma^{-1} phi
    kappa(p0) = sup_x  x^T Sigma_e x / x^T Sigma x                                (Chang et al. 2022, eq. 1)

Both are unchanged by an invertible linear map of the features. Leverage needs no rollouts of the target
policy; kappa does.
"""

from dataclasses import dataclass

import numpy as np

from bcrl.estimate import FloatArray
from bcrl.linear.moments import Moments, whiten


def occupancy_moment(features: FloatArray, time: FloatArray, discount: float) -> FloatArray:
    """E[phi phi^T] under the target policy's discounted occupancy, from its rollouts.

    Args:
        features: phi(s_t, a_t) along the rollouts, shape (n, d).
        time: the step t of each row, shape (n,).
        discount: weight discount^t; the weights are normalised to sum to 1, which takes care of cut-off
            rollouts.
    """
    weights = np.power(discount, time, dtype=np.float64)
    scaled = np.asarray(features, dtype=np.float64) * np.sqrt(weights / weights.sum())[:, None]
    return np.asarray(scaled.T @ scaled)


@dataclass(frozen=True)
class Coverage:
    """kappa(p0), and the mean leverage tr(Sigma^{-1} Sigma_e), which lies between kappa and d kappa."""

    kappa: float
    mean_leverage: float


def kappa(moments: Moments, target_second: FloatArray) -> Coverage:
    """Relative condition number of the paper's equation 1; ridge tr(Sigma) / (d N) on Sigma keeps it finite.

    Args:
        moments: sums over the logged transitions.
        target_second: E[phi phi^T] under the target policy's occupancy (`occupancy_moment`), shape (d, d).
    """
    matrix = whiten(moments.mean.sigma, ridge=1.0 / moments.count).matrix
    relative = matrix.T @ target_second @ matrix
    return Coverage(float(np.linalg.eigvalsh(relative)[-1]), float(np.trace(relative)))
