"""Theta: the inner minimum over it, against projected gradient; the outer gradient by finite differences."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from representations.bellman_complete.gradient_steps import converged
from representations.bellman_complete.test_learner import SMALL, make_learner

from bcrl.representations.bellman_complete import Bounds, GradientSteps
from bcrl.representations.bellman_complete.objective import (
    TorchMoments,
    closed_form,
    completeness_loss,
    moments_of,
    reward_loss,
)
from bcrl.representations.bellman_complete.theta import (
    InTheta,
    clip_singular_values,
    shrink_to_ball,
)

DISCOUNT, N, D, POLICIES = 0.9, 60, 4, 2
BOUNDS = Bounds(0.4, 0.15)


def batch(seed=0):
    rng = np.random.default_rng(seed)
    phi = torch.from_numpy(rng.normal(size=(N, D)) * [1.0, 0.5, 2.0, 0.3])
    ahead = torch.from_numpy(0.3 * rng.normal(size=(POLICIES, N, D))) + phi @ torch.from_numpy(
        rng.normal(size=(D, D))
    )
    return phi, ahead, torch.from_numpy(rng.normal(size=N)) + phi[:, 3]


def loss_of(moments, m, rho, metric):
    return float(completeness_loss(moments, m, DISCOUNT, metric=metric, ridge=0.0)), float(
        reward_loss(moments, rho)
    )


def slow_minimum(moments, metric):
    """Projected gradient with steps far below 1 / L, until it stands still."""
    m, rho = (part.clone() for part in closed_form(moments, DISCOUNT, 0.0))
    m, rho = clip_singular_values(m, BOUNDS.m), shrink_to_ball(rho, BOUNDS.rho)
    values, vectors = torch.linalg.eigh(moments.sigma)
    weight = torch.eye(D) if metric == "plain" else vectors @ torch.diag(1.0 / values) @ vectors.T
    step = 0.5 / float(values[-1] * (1.0 if metric == "plain" else 1.0 / values[0]))
    for _ in range(8000 if metric == "whitened" else 2000):
        slope = weight.double() @ (m @ moments.sigma - DISCOUNT * moments.c.transpose(1, 2))
        m = clip_singular_values(m - step * slope, BOUNDS.m)
    for _ in range(2000):
        slope = moments.sigma @ rho - moments.b
        rho = shrink_to_ball(rho - 0.5 / float(values[-1]) * slope, BOUNDS.rho)
    return loss_of(moments, m, rho, metric)


@pytest.mark.parametrize("metric", ["plain", "whitened"])
def test_the_minimum_over_theta_is_found(metric):
    """F21: clipping the free solution gives a point of Theta, and not the minimum."""
    phi, ahead, rewards = batch()
    moments = moments_of(phi, list(ahead), rewards)
    inner = InTheta(BOUNDS, metric, 0.0)
    m, rho = inner.solve(moments, DISCOUNT)
    assert torch.linalg.svdvals(m).max() <= BOUNDS.m + 1e-9
    assert torch.linalg.vector_norm(rho) <= BOUNDS.rho * (1 + 1e-9)
    ours, slow = loss_of(moments, m, rho, metric), slow_minimum(moments, metric)
    np.testing.assert_allclose(ours, slow, rtol=2e-6)
    free = closed_form(moments, DISCOUNT, 0.0)
    clipped = clip_singular_values(free[0], BOUNDS.m), shrink_to_ball(free[1], BOUNDS.rho)
    worse = loss_of(moments, *clipped, metric)
    assert worse[0] > 1.02 * ours[0] and worse[1] > 1.005 * ours[1]
    again = InTheta(BOUNDS, metric, 0.0)
    again.warm = inner.warm
    torch.testing.assert_close(again.solve(moments, DISCOUNT)[0], m, atol=1e-3, rtol=0.0)


def test_bounds_that_do_not_bind_leave_the_closed_form():
    moments = moments_of(*[part if k != 1 else list(part) for k, part in enumerate(batch())])
    for ours, free in zip(
        InTheta(Bounds(100.0, 100.0), "plain", 0.0).solve(moments, DISCOUNT),
        closed_form(moments, DISCOUNT, 0.0),
        strict=True,
    ):
        torch.testing.assert_close(ours, free, atol=1e-8, rtol=0.0)


@pytest.mark.parametrize("metric", ["plain", "whitened"])
def test_the_gradient_with_m_held_fixed_is_that_of_the_bilevel_objective(metric):
    """Envelope theorem, by finite differences of min over Theta; at a clipped M it does not hold."""
    phi, ahead, rewards = batch()

    def bilevel(features, gradient=False, clip=False):
        moments = moments_of(features, list(ahead), rewards)
        m, rho = InTheta(BOUNDS, metric, 0.0).solve(moments, DISCOUNT)
        if clip:
            m, rho = (part.detach() for part in closed_form(moments, DISCOUNT, 0.0))
            m, rho = clip_singular_values(m, BOUNDS.m), shrink_to_ball(rho, BOUNDS.rho)
        loss = completeness_loss(moments, m, DISCOUNT, metric=metric, ridge=0.0) + reward_loss(moments, rho)
        return torch.autograd.grad(loss, features)[0] if gradient else float(loss)

    directions = torch.from_numpy(np.random.default_rng(1).normal(size=(10, N, D)))
    leaf, h = phi.clone().requires_grad_(), 1e-4
    off = {}
    for clip in (False, True):
        slopes = (bilevel(leaf, gradient=True, clip=clip) * directions).sum(dim=(1, 2)).numpy()
        ends = [bilevel(phi + h * one, clip=clip) - bilevel(phi - h * one, clip=clip) for one in directions]
        off[clip] = np.abs(slopes - np.asarray(ends) / (2 * h)).max() / np.abs(slopes).max()
    assert off[False] < 1e-3 and off[True] > 0.03, off


def test_gradient_steps_come_to_rest_at_the_minimum_over_theta():
    phi, ahead, rewards = batch()
    moments = moments_of(phi, list(ahead), rewards)
    inner = converged(moments, D, POLICIES, BOUNDS, steps=700, discount=DISCOUNT, lr=0.1, fall=0.99)
    assert torch.linalg.svdvals(inner.m.detach()).max() <= BOUNDS.m + 1e-9
    assert torch.linalg.vector_norm(inner.rho.detach()) <= BOUNDS.rho + 1e-9
    found = loss_of(moments, inner.m.detach(), inner.rho.detach(), "plain")
    np.testing.assert_allclose(found, slow_minimum(moments, "plain"), rtol=1e-3)


@pytest.mark.parametrize("inner", [None, GradientSteps(lr=0.1)], ids=["minimum", "gradient"])
def test_the_learner_keeps_theta_in_both_variants(inner):
    """F21: M of a training step lies in Theta; without gradient steps it is the minimum over it."""
    recipe = replace(SMALL, bounds=BOUNDS, inner=inner, metric="plain", ridge=0.0, value_weight=0.0)
    learner = make_learner(recipe)
    first = learner.step()
    assert torch.linalg.svdvals(learner.m).max() <= BOUNDS.m + 1e-9
    if inner is None:
        moments = TorchMoments(*[part.detach() for part in learner.running.parts])
        m, rho = InTheta(BOUNDS, "plain", 0.0).solve(moments, DISCOUNT)
        ours = float(first["completeness"]), float(first["reward"])
        np.testing.assert_allclose(ours, loss_of(moments, m, rho, "plain"), rtol=1e-6)
        assert first["theta_gap"] < 1e-6
