"""The value term: residuals along LSPE's own iterates, with phi' and the directions held still."""

import numpy as np
import pytest
import torch
from torch.autograd.gradcheck import GradcheckError

from bcrl.representations.bellman_complete.objective import closed_form, iterates, moments_of, value_loss

DISCOUNT, COUNT = 0.9, 6
N, D, POLICIES = 40, 4, 2


def make_batch():
    rng = np.random.default_rng(1)
    phi = torch.from_numpy(rng.normal(size=(N, D)))
    ahead = torch.from_numpy(0.3 * rng.normal(size=(POLICIES, N, D))) + phi
    return phi, ahead, torch.from_numpy(rng.normal(size=N))


def solved(phi, ahead, rewards):
    moments = moments_of(phi, list(ahead), rewards, still=True)
    m, rho = closed_form(moments, DISCOUNT, ridge=0.0)
    return m.detach(), iterates(m, rho, moments.sigma, COUNT)


def value_term(phi, ahead, rewards, m, directions):
    return value_loss(moments_of(phi, list(ahead), rewards, still=True), m, directions, DISCOUNT)


def frozen(phi, ahead, m, directions):
    """sum_k E (w_{k+1}^T phi - discount w_k^T phi')^2, straight from the features."""
    total = 0.0
    for k in range(POLICIES):
        here, there = phi @ (directions[k] @ m[k]).T, ahead[k] @ directions[k].T
        total = total + (here - DISCOUNT * there).square().mean(dim=0).sum()
    return total / POLICIES


def test_it_is_the_mean_squared_residual_along_the_iterates():
    batch = make_batch()
    m, directions = solved(*batch)
    assert float(value_term(*batch, m, directions)) == pytest.approx(
        float(frozen(*batch[:2], m, directions)), rel=1e-10
    )


def test_gradient_matches_finite_differences_of_the_frozen_target():
    """M and the iterates answer to phi too, and so does phi'; neither may enter the gradient."""
    phi, ahead, rewards = make_batch()
    m, directions = solved(phi, ahead, rewards)
    leaf, next_leaf = phi.clone().requires_grad_(), ahead.clone().requires_grad_()
    value_term(leaf, next_leaf, rewards, m, directions).backward()
    step = 1e-6
    numeric = torch.zeros_like(phi)
    for index in np.ndindex(N, D):
        up, down = phi.clone(), phi.clone()
        up[index] += step
        down[index] -= step
        numeric[index] = (frozen(up, ahead, m, directions) - frozen(down, ahead, m, directions)) / (2 * step)
    torch.testing.assert_close(leaf.grad, numeric, atol=1e-7, rtol=1e-6)
    assert next_leaf.grad is None or not next_leaf.grad.any()


def test_one_network_for_both_sides_is_no_full_gradient():
    """The check above can fail: where phi' moves with phi, the term is no gradient of its own value."""
    phi, ahead, rewards = make_batch()
    m, directions = solved(phi, ahead, rewards)
    shift = ahead - phi
    with pytest.raises(GradcheckError):
        torch.autograd.gradcheck(
            lambda a: value_term(a, a + shift, rewards, m, directions), (phi.requires_grad_(),), eps=1e-6
        )


def test_iterates_are_lspe_steps_and_never_grow():
    phi, ahead, rewards = make_batch()
    moments = moments_of(phi, list(ahead), rewards, still=True)
    m, rho = closed_form(moments, DISCOUNT, ridge=0.0)
    calm = iterates(0.5 * m, rho, moments.sigma, 3)
    torch.testing.assert_close(calm[0, 2], 0.25 * (m[0].T @ (m[0].T @ rho)))
    wild = iterates(5.0 * m, rho, moments.sigma, COUNT)
    sizes = torch.einsum("pki,ij,pkj->pk", wild, moments.sigma, wild)
    assert (sizes.diff(dim=1) <= 1e-9).all()


def test_directions_that_decayed_to_rounding_stay_finite():
    """w^T sigma w may come out a hair below zero, and then at exactly zero, once w has decayed."""
    sigma = torch.tensor([[1.0, 1.0], [1.0, 1.0 - 1e-16]], dtype=torch.float64) - 1e-16
    m = torch.tensor([[[1e-160, 0.0], [0.0, 1e-160]]], dtype=torch.float64)
    rho = torch.tensor([1.0, -1.0], dtype=torch.float64)
    assert torch.isfinite(iterates(m, rho, sigma, 6)).all()
    assert torch.isfinite(iterates(m, rho, -sigma, 6)).all()
