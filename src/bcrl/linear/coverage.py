"""How well logged data cover what is asked of them: leverage of rows, kappa(p0) of a policy's occupancy.

    leverage(phi) = phi^T Sigma^{-1} phi
    kappa(p0) = sup_x  x^T Sigma_e x / x^T Sigma x                                (Chang et al. 2022, eq. 1)

Both are unchanged by an invertible linear map of the features. Leverage needs no rollouts of the target
policy; kappa does.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.errors import BadInput
from bcrl.estimate import FloatArray
from bcrl.linear.moments import Moments, whiten


def occupancy_weights(time: NDArray[Any], terminated: NDArray[np.bool_], discount: float) -> FloatArray:
    """Weight of each row of rollouts in the discounted occupancy (1 - discount) sum_t discount^t d_t, (n,).

    Where the world ends, nobody visits anything later: that mass is missing, and the weights sum to less than
    1. The mass beyond the end of a record that was cut off is spread over what was seen.

    Args:
        time: the step t of each row; a rollout begins where it is 0, shape (n,).
        terminated: whether the world ended with this row, shape (n,).
        discount: in [0, 1).
    """
    begun = int(np.sum(time == 0))
    if begun == 0 or not 0.0 <= discount < 1.0:
        raise BadInput(
            f"{begun} rollouts begin at time 0 and the discount is {discount}; expected whole rollouts and a "
            "discount in [0, 1)."
        )
    share = (1.0 - discount) * np.power(discount, time, dtype=np.float64) / begun
    ended = float(np.sum(share[terminated])) * discount / (1.0 - discount)
    return np.asarray(share * ((1.0 - ended) / share.sum()))


def occupancy_moment(
    features: FloatArray, time: NDArray[Any], terminated: NDArray[np.bool_], discount: float
) -> FloatArray:
    """E[phi phi^T] under the target policy's discounted occupancy, from its rollouts.

    Args:
        features: phi(s_t, a_t) along the rollouts, shape (n, d).
        time, terminated, discount: as in `occupancy_weights`.
    """
    weights = occupancy_weights(time, terminated, discount)
    scaled = np.asarray(features, dtype=np.float64) * np.sqrt(weights)[:, None]
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
