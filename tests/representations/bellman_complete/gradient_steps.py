"""Gradient steps on M and rho until they rest, for tests that hold them against closed forms."""

import torch

from bcrl.representations.bellman_complete.learner import GradientInner


def converged(moments, dim, policies, bounds, *, steps, discount, lr, fall):
    generator, device = torch.Generator().manual_seed(0), torch.device("cpu")
    inner = GradientInner(dim, policies, lr=lr, generator=generator, device=device)
    for step in range(steps):
        for group in inner.optimiser.param_groups:
            group["lr"] = lr * fall**step
        inner.step(moments, discount, 1.0, bounds)
    return inner
