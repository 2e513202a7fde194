"""Whether zeta is a ratio of occupancies: its mean, its extremes, and the flow that it must keep.

For every function f of (s, a) the ratio of a policy's discounted occupancy to the data satisfies

    (1 - g) E[f(s0, pi)] + E_D[ zeta (g f(s', pi) - f(s, a)) ] = 0

which is tried on random cosines that the training never saw.
"""

import numpy as np
import torch
from torch import Tensor

from bcrl.estimate import Check, FloatArray
from bcrl.estimators.dice.learner import DiceData, DiceLearner

_COSINES = 64
_CHUNK = 8192


def flow_residual(learner: DiceLearner, zeta: FloatArray, zeta_end: float, discount: float) -> float:
    """Root mean square of the flow equation's gap over random cosines, in units of each one's deviation over the data."""
    data, generator = learner.data, torch.Generator().manual_seed(0)
    width = data.z.shape[1] + data.actions.shape[1]
    weights = torch.randn(width, _COSINES, generator=generator) / width**0.5
    phases = 2.0 * np.pi * torch.rand(_COSINES, generator=generator)

    def f(z: Tensor, actions: Tensor) -> Tensor:
        return torch.cos(torch.cat([z, actions], dim=1) @ weights.to(z) + phases.to(z)).double()

    start = _policy_average(f, data, data.start_z, data.start_chosen, data.start_weights, generator).mean(
        dim=0
    )
    scale = torch.as_tensor(zeta).to(start)
    scale = scale / (scale.mean() + learner.end_weight * zeta_end)
    flow, squares, sums = torch.zeros_like(start), torch.zeros_like(start), torch.zeros_like(start)
    for first in range(0, len(data.rows), _CHUNK):
        part = slice(first, first + _CHUNK)
        rows = data.rows[part]
        here = f(data.z[rows], data.actions[part])
        there = _policy_average(
            f, data, data.z[rows + 1], data.chosen[rows + 1], data.weights[rows + 1], generator
        )
        there = torch.where(data.terminated[part][:, None], torch.zeros_like(there), there)
        flow += (scale[part, None] * (discount * there - here)).sum(dim=0)
        squares, sums = squares + here.square().sum(dim=0), sums + here.sum(dim=0)
    count = len(data.rows)
    deviation = (squares / count - (sums / count).square()).clamp_min(1e-12).sqrt()
    gap = (1.0 - discount) * start + flow / count
    return float((gap / deviation).square().mean().sqrt())


def _policy_average(
    f: "object", data: DiceData, z: Tensor, chosen: Tensor, weights: Tensor, generator: torch.Generator
) -> Tensor:
    assert callable(f)
    total = torch.zeros(1, device=z.device)
    for k in range(chosen.shape[1]):
        shake = data.noise * torch.randn(chosen[:, k].shape, generator=generator).to(z)
        total = total + weights[:, k, None] * f(z, chosen[:, k] + shake)
    return total


def dice_checks(zeta: FloatArray, mean: float, residual: float, noise: float) -> tuple[Check, ...]:
    """Mean and maximum of zeta, the flow, and a word on the noise where there was some."""
    off = abs(mean - 1.0)
    largest = float(zeta.max() / max(zeta.mean(), 1e-12))
    share = float(np.square(zeta.sum()) / max(np.square(zeta).sum(), 1e-300)) / len(zeta)
    checks = [
        Check(
            "mean of zeta",
            mean,
            1.0,
            "trust" if off < 0.1 else "caution" if off < 0.5 else "distrust",
            f"The weights average {mean:.2f}; a ratio of distributions averages 1.",
        ),
        Check(
            "largest zeta",
            largest,
            100.0,
            "trust" if largest < 100.0 and share > 0.05 else "caution" if share > 0.005 else "distrust",
            f"The largest weight is {largest:.0f} times the mean; the weights use {100 * share:.1f} % of the data.",
        ),
        Check(
            "flow of the occupancy",
            residual,
            0.05,
            "trust" if residual < 0.05 else "caution" if residual < 0.15 else "distrust",
            f"As much must flow into every state as out of it; the weights miss that by {residual:.3f} standard deviations.",
        ),
    ]
    if noise > 0.0:
        meaning = (
            f"The value is that of the policy plus noise of {noise:g} logged standard deviations on its actions, "
            "not of the policy itself."
        )
        checks.append(Check("noise on the policy", noise, None, "caution", meaning))
    return tuple(checks)
