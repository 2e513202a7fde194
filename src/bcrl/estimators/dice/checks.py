"""Whether zeta is a ratio of occupancies: its mean, its extremes, and the flow that it must keep.

For every function f of (s, a) the ratio of a policy's discounted occupancy to the data satisfies

    (1 - g) E[f(s0, pi)] + E_D[ zeta (g f(s', pi) - f(s, a)) ] = 0

which is tested on random cosines that the training never saw.
"""

import numpy as np
import torch
from torch import Tensor

from bcrl.estimate import Check, FloatArray
from bcrl.estimators.dice.data import DiceData
from bcrl.estimators.dice.solve import Solution
from bcrl.inference.checks import action_support as support_check
from bcrl.inference.checks import graded
from bcrl.inference.evidence import action_support
from bcrl.inference.inputs import states_of
from bcrl.policies.policy import TargetActions
from bcrl.question import Question

_COSINES = 64
_CHUNK = 8192
_SUPPORT_ROWS = 20  # action support is measured in logs with more


def examine(
    question: Question, chosen: TargetActions, data: DiceData, solved: Solution
) -> tuple[tuple[Check, ...], dict[str, float]]:
    """All checks of zeta, and their numbers; `chosen` are the policy's actions at every observation row."""
    residual = flow_residual(data, solved)
    checks = [mean_check(solved.mean), largest_check(solved.zeta), flow_check(residual)]
    stats = {
        "mean_zeta": solved.mean,
        "max_zeta": float(solved.zeta.max()),
        "flow_residual": residual,
        "repair": solved.repair,
    }
    if data.noise > 0.0:
        checks.append(noise_check(data.noise))
    if len(question.dataset) > _SUPPORT_ROWS:
        states = states_of(question.dataset, data.z.cpu().numpy())
        share = action_support(states, question.dataset, chosen, solved.zeta, seed=question.seed)
        stats["action_support"] = share
        checks.append(support_check(share))
    return tuple(checks), stats


def flow_residual(data: DiceData, solved: Solution) -> float:
    """Root mean square, over random cosines, of the flow equation's gap in each one's deviations."""
    generator, width = torch.Generator().manual_seed(0), data.z.shape[1] + data.actions.shape[1]
    weights = torch.randn(width, _COSINES, generator=generator) / width**0.5
    phases = 2.0 * np.pi * torch.rand(_COSINES, generator=generator)

    def f(z: Tensor, actions: Tensor) -> Tensor:
        return torch.cos(torch.cat([z, actions], dim=1) @ weights.to(z) + phases.to(z)).double()

    start = data.average(f, data.start, generator).mean(dim=0)
    zeta = torch.as_tensor(solved.zeta).to(start)
    zeta = zeta / (zeta.mean() + solved.end_mass)
    flow, squares, sums = torch.zeros_like(start), torch.zeros_like(start), torch.zeros_like(start)
    for first in range(0, len(data.rows), _CHUNK):
        part = slice(first, first + _CHUNK)
        rows = data.rows[part]
        here = f(data.z[rows], data.actions[part])
        there = data.average(f, data.policy.take(rows + 1), generator)
        there = torch.where(data.terminated[part][:, None], torch.zeros_like(there), there)
        flow += (zeta[part, None] * (data.discount * there - here)).sum(dim=0)
        squares, sums = squares + here.square().sum(dim=0), sums + here.sum(dim=0)
    count = len(data.rows)
    deviation = (squares / count - (sums / count).square()).clamp_min(1e-12).sqrt()
    gap = (1.0 - data.discount) * start + flow / count
    return float((gap / deviation).square().mean().sqrt())


def mean_check(mean: float) -> Check:
    """A ratio of distributions averages 1 over the data."""
    meaning = f"The weights average {mean:.2f}; a ratio of distributions averages 1."
    return Check("mean of zeta", mean, 1.0, graded(abs(mean - 1.0), 0.1, 0.5), meaning)


def largest_check(zeta: FloatArray) -> Check:
    """If few rows have most of the weight, little data is left."""
    largest = float(zeta.max() / max(zeta.mean(), 1e-12))
    share = float(np.square(zeta.sum()) / max(np.square(zeta).sum(), 1e-300)) / len(zeta)
    return Check(
        "largest zeta",
        largest,
        100.0,
        "trust" if largest < 100.0 and share > 0.05 else "caution" if share > 0.005 else "distrust",
        f"The largest weight is {largest:.0f} times the mean; "
        f"the weights use {100 * share:.1f}% of the data.",
    )


def flow_check(residual: float) -> Check:
    """As much must flow into every state as out of it."""
    meaning = (
        "As much must flow into every state as out of it; "
        f"the weights miss that by {residual:.3f} standard deviations."
    )
    return Check("flow of the occupancy", residual, 0.05, graded(residual, 0.05, 0.15), meaning)


def noise_check(noise: float) -> Check:
    """A deterministic policy was given noise, in logged standard deviations."""
    meaning = (
        f"The value is that of the policy plus noise of {noise:g} logged standard deviations on its actions, "
        "not of the policy itself."
    )
    return Check("noise on the policy", noise, None, "caution", meaning)
