"""LSPE as its definition reads: every iteration goes over all transitions, O(N d) each, O(N d K) in all.

Vectorised and in float64, with Sigma factorised once; the structure of the authors' released loop without its
float32.
"""

import numpy as np
from scipy import linalg


def lspe_direct(phi, next_phi, rewards, terminated, *, discount, iterations, start_features, ridge=1e-8):
    """theta_K and the curve start_features @ theta_k, k = 1..K. `next_phi` is masked in place of being copied
    each time.
    """
    masked = np.where(terminated[:, None], 0.0, next_phi)
    n, d = phi.shape
    sigma = phi.T @ phi / n
    factor = linalg.cho_factor(sigma + ridge * np.trace(sigma) / d * np.eye(d))
    theta, curve = np.zeros(d), np.empty(iterations)
    for k in range(iterations):
        target = rewards + discount * (masked @ theta)
        theta = linalg.cho_solve(factor, phi.T @ target / n)
        curve[k] = start_features @ theta
    return theta, curve
