"""The objective of Chang et al. (2022), every term a function of the moments (moments.py).

    J(phi, M, rho) = E || [M; rho^T] phi(s, a) - [discount phi(s', pi); r] ||^2  -  lambda R(phi)

    completeness   tr R_M,               R_M = M sigma M^T - discount (M c + (M c)^T) + discount^2 sigma_next
    reward         rho^T sigma rho - 2 rho^T b + E[r^2]
    D-design       log det sigma         (Cholesky in float64)
    E-design       lambda_min(sigma)

Scale traps: the plain objective shrinks with the features, and with a target network nothing opposes the design term's
growth. The whitened metric measures the same residual relative to the features, tr(sigma^{-1} R_M) / d, the mean over functions
w^T phi with ||w^T phi||_nu = 1, and the reward's relative to its variance: it does not change when features are mixed by
any invertible matrix, so there is no scale to run away with and no direction to hide in.
"""

from typing import Literal

import torch
from torch import Tensor

from bcrl.representations.bellman_complete.moments import TorchMoments

Metric = Literal["whitened", "plain"]
Design = Literal["none", "D", "E"]


def regularised(sigma: Tensor, ridge: float) -> Tensor:
    """sigma + ridge tr(sigma)/d I."""
    dim = len(sigma)
    return sigma + ridge * torch.trace(sigma) / dim * torch.eye(dim, dtype=sigma.dtype, device=sigma.device)


def residual(moments: TorchMoments, m: Tensor, discount: float) -> Tensor:
    """R_M of each policy, shape (policies, d, d)."""
    cross = discount * (m @ moments.c)
    return (
        m @ moments.sigma @ m.transpose(1, 2)
        - cross
        - cross.transpose(1, 2)
        + discount**2 * moments.sigma_next
    )


def completeness_loss(
    moments: TorchMoments, m: Tensor, discount: float, *, metric: Metric, ridge: float
) -> Tensor:
    """Mean over policies of tr R_M (plain) or tr(sigma^{-1} R_M) / d (whitened).

    Args:
        moments: of the batch.
        m: one matrix per policy, shape (policies, d, d).
        discount: of the values.
        metric: how the residual is measured.
        ridge: of the whitening, in units of tr(sigma) / d.
    """
    error = residual(moments, m, discount)
    if metric == "whitened":
        factor = torch.linalg.cholesky(regularised(moments.sigma, ridge))
        error = torch.cholesky_solve(error.transpose(0, 1).flatten(1), factor)
        dim, policies = len(moments.b), len(m)
        error = error.view(dim, policies, dim).transpose(0, 1) / dim
    return error.diagonal(dim1=1, dim2=2).sum(dim=1).mean()


def reward_loss(moments: TorchMoments, rho: Tensor) -> Tensor:
    """E (rho^T phi - r)^2."""
    return rho @ moments.sigma @ rho - 2.0 * (rho @ moments.b) + moments.reward_square


def log_det(sigma: Tensor, jitter: float) -> Tensor:
    """D-design: log det(sigma + jitter I)."""
    dim = len(sigma)
    factor = torch.linalg.cholesky(sigma + jitter * torch.eye(dim, dtype=sigma.dtype, device=sigma.device))
    total: Tensor = 2.0 * factor.diagonal().log().sum()
    return total


def smallest_eigenvalue(sigma: Tensor) -> Tensor:
    """E-design: lambda_min(sigma); its gradient is v v^T of the bottom eigenvector."""
    with torch.no_grad():
        bottom: Tensor = torch.linalg.eigh(sigma)[1][:, 0]
    return bottom @ sigma @ bottom


def design_value(sigma: Tensor, design: Design, jitter: float) -> Tensor:
    """R(phi): log det for "D", lambda_min for "E"; larger is better covered."""
    return log_det(sigma, jitter) if design == "D" else smallest_eigenvalue(sigma)
