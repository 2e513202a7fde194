"""Every term of the objective: its gradient, its meaning, and the inner problem's answer."""

import numpy as np
import pytest
import torch
from representations.bellman_complete.gradient_steps import converged
from torch.autograd.gradcheck import GradcheckError

from bcrl.representations.bellman_complete import Bounds
from bcrl.representations.bellman_complete.objective import (
    closed_form,
    completeness_loss,
    design_value,
    log_det,
    moments_of,
    reward_loss,
    smallest_eigenvalue,
)
from bcrl.representations.bellman_complete.theta import (
    clip_singular_values,
    shrink_to_ball,
)

DISCOUNT = 0.9
N, D, POLICIES = 40, 4, 2


def make_batch(seed=0):
    rng = np.random.default_rng(seed)
    phi = torch.from_numpy(rng.normal(size=(N, D)))
    ahead = torch.from_numpy(rng.normal(size=(POLICIES, N, D)))
    mix = torch.from_numpy(rng.normal(size=(D, D)))
    return phi, 0.3 * ahead + phi @ mix, torch.from_numpy(rng.normal(size=N)), mix


def whole_loss(phi, ahead, rewards, *, term, guess=None, detach_inner=False):
    """One term as a function of the batch's features, M and rho solved in closed form."""
    moments = moments_of(phi, list(ahead), rewards, guess)
    m, rho = closed_form(moments, DISCOUNT, ridge=0.0)
    if detach_inner:
        m, rho = m.detach(), rho.detach()
    if term in ("plain", "whitened"):
        return completeness_loss(moments, m, DISCOUNT, metric=term, ridge=1e-3 if term == "whitened" else 0.0)
    if term == "reward":
        return reward_loss(moments, rho)
    return design_value(moments.sigma, term, 1e-8)


@pytest.mark.parametrize("term", ["plain", "whitened", "reward", "D", "E"])
@pytest.mark.parametrize("corrected", [False, True])
def test_gradients_match_finite_differences(term, corrected):
    phi, ahead, rewards, _ = make_batch()
    guess = [ahead[k] * 0.9 + 0.1 for k in range(POLICIES)] if corrected else None
    inputs = (phi.requires_grad_(), ahead.requires_grad_())
    assert torch.autograd.gradcheck(
        lambda a, b: whole_loss(a, b, rewards, term=term, guess=guess), inputs, eps=1e-6, atol=1e-7, rtol=1e-5
    )


def test_wrong_gradient_would_be_seen():
    """The check above is sharp: whitening by a constant sigma is another objective, and fails it."""
    phi, ahead, rewards, _ = make_batch()

    def frozen(a, b):
        moments = moments_of(a, list(b), rewards)
        m, _ = closed_form(moments, DISCOUNT, ridge=0.0)
        plain = completeness_loss(moments, m, DISCOUNT, metric="plain", ridge=0.0)
        return plain / torch.trace(moments.sigma.detach())

    with pytest.raises(GradcheckError):
        torch.autograd.gradcheck(
            frozen, (phi.requires_grad_(), ahead.requires_grad_()), eps=1e-6, atol=1e-7, rtol=1e-5
        )


@pytest.mark.parametrize("term", ["plain", "reward"])
def test_variable_projection(term):
    """At the inner optimum, how M answers to the features does not matter for the gradient (envelope
    theorem).
    """
    phi, ahead, rewards, _ = make_batch()
    gradients = []
    for detach in (False, True):
        leaf = phi.clone().requires_grad_()
        whole_loss(leaf, ahead, rewards, term=term, detach_inner=detach).backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-10, rtol=1e-9)


def test_plain_loss_is_the_mean_squared_residual():
    phi, ahead, rewards, _ = make_batch()
    moments = moments_of(phi, list(ahead), rewards)
    m, rho = closed_form(moments, DISCOUNT, ridge=0.0)
    direct = np.mean([((phi @ m[k].T - DISCOUNT * ahead[k]) ** 2).sum(dim=1).mean() for k in range(POLICIES)])
    assert float(completeness_loss(moments, m, DISCOUNT, metric="plain", ridge=0.0)) == pytest.approx(
        direct, rel=1e-10
    )
    assert float(reward_loss(moments, rho)) == pytest.approx(
        float(((phi @ rho - rewards) ** 2).mean()), rel=1e-10
    )


def test_whitened_loss_ignores_mixing_and_scale():
    phi, ahead, rewards, mix = make_batch()
    losses = []
    for map_ in (torch.eye(D).double(), 1e-3 * torch.eye(D).double(), mix):
        moments = moments_of(phi @ map_, list(ahead @ map_), rewards)
        m, _ = closed_form(moments, DISCOUNT, ridge=0.0)
        losses.append(float(completeness_loss(moments, m, DISCOUNT, metric="whitened", ridge=0.0)))
    np.testing.assert_allclose(losses, losses[0], rtol=1e-8)


def test_corrected_loss_is_the_stable_form():
    """E <M phi - discount g, M phi + discount g - 2 discount phi'>, and no pull on phi' where M phi =
    discount g.
    """
    phi, ahead, rewards, _ = make_batch()
    m, _ = closed_form(moments_of(phi, list(ahead), rewards), DISCOUNT, ridge=0.0)
    guess = [ahead[k] * 0.7 for k in range(POLICIES)]
    loss = completeness_loss(
        moments_of(phi, list(ahead), rewards, guess), m, DISCOUNT, metric="plain", ridge=0.0
    )
    direct = [
        (
            (phi @ m[k].T - DISCOUNT * guess[k])
            * (phi @ m[k].T + DISCOUNT * guess[k] - 2 * DISCOUNT * ahead[k])
        )
        .sum(1)
        .mean()
        for k in range(POLICIES)
    ]
    assert float(loss) == pytest.approx(float(np.mean(direct)), rel=1e-9)
    leaf = ahead.clone().requires_grad_()
    linear = [(phi @ m[k].T) / DISCOUNT for k in range(POLICIES)]
    moments = moments_of(phi, list(leaf), rewards, linear)
    completeness_loss(moments, m, DISCOUNT, metric="plain", ridge=0.0).backward()
    np.testing.assert_allclose(leaf.grad.numpy(), 0.0, atol=1e-12)


def test_design_values():
    phi, ahead, rewards, _ = make_batch()
    sigma = moments_of(phi, list(ahead), rewards).sigma
    eigenvalues = np.linalg.eigvalsh(sigma.numpy())
    assert float(log_det(sigma, 0.0)) == pytest.approx(np.log(eigenvalues).sum())
    assert float(smallest_eigenvalue(sigma)) == pytest.approx(eigenvalues[0])


def test_closed_form_equals_converged_gradient_steps():
    phi, ahead, rewards, _ = make_batch()
    moments = moments_of(phi, list(ahead), rewards)
    inner = converged(moments, D, POLICIES, Bounds(), steps=3000, discount=DISCOUNT, lr=0.05, fall=0.998)
    m, rho = closed_form(moments, DISCOUNT, ridge=0.0)
    torch.testing.assert_close(inner.m.detach(), m, atol=1e-6, rtol=0.0)
    torch.testing.assert_close(inner.rho.detach(), rho, atol=1e-6, rtol=0.0)


def test_theta_constraints():
    rng = np.random.default_rng(0)
    m = torch.from_numpy(rng.normal(size=(POLICIES, D, D)))
    clipped = clip_singular_values(m, 0.5)
    values = torch.linalg.svdvals(clipped)
    assert values.max() <= 0.5 + 1e-12
    small = 0.01 * m
    assert clip_singular_values(small, 0.5) is small
    # Clipping is the Frobenius projection: closer than scaling the whole matrix.
    scaled = m * (0.5 / torch.linalg.matrix_norm(m, ord=2))[:, None, None]
    assert torch.linalg.norm(m - clipped) < torch.linalg.norm(m - scaled)
    assert torch.linalg.vector_norm(shrink_to_ball(torch.ones(4).double(), 0.3)) == pytest.approx(0.3)
