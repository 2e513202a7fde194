"""Least squares in a ball, by the secular equation.

    min_theta  theta^T Sigma theta - 2 y^T theta   s.t.  ||theta||_2 <= W

has the solution theta = (Sigma + mu I)^{-1} y with mu >= 0 and mu (||theta|| - W) = 0. In the eigenbasis of
Sigma, n(mu)^2 = sum_i y_i^2 / (D_i + mu)^2, and n(mu) = W is solved by Newton on 1/n - 1/W, which is concave
and increasing: started left of the root the steps stay left of it and converge quadratically. This is the
constraint of Algorithm 1 of Chang et al. (2022): the Sigma-norm projection of the least squares solution on
B_W, not a rescaling of it.
"""

from collections.abc import Callable

import numpy as np

from bcrl.estimate import FloatArray

_STEPS = 200


def ball_projection(eigenvalues: FloatArray, radius: float) -> Callable[[FloatArray], FloatArray]:
    """The map y -> theta, both in the eigenbasis of Sigma.

    Args:
        eigenvalues: of Sigma, all above 0, shape (r,).
        radius: W.
    """

    def project(y: FloatArray) -> FloatArray:
        return np.asarray(y / (eigenvalues + ball_multiplier(y, eigenvalues, radius)))

    return project


def ball_multiplier(y: FloatArray, eigenvalues: FloatArray, radius: float) -> float:
    """The multiplier mu >= 0 of the constraint; 0 where the least squares solution lies in the ball."""
    if float(np.linalg.norm(y / eigenvalues)) <= radius:
        return 0.0
    mu = max(0.0, float(np.linalg.norm(y)) / radius - float(eigenvalues.max()))
    for _ in range(_STEPS):
        scaled = y / (eigenvalues + mu)
        norm = float(np.linalg.norm(scaled))
        if norm <= radius * (1.0 + 1e-14):
            break
        mu += norm**2 / float(np.sum(scaled**2 / (eigenvalues + mu))) * (norm - radius) / radius
    return mu
