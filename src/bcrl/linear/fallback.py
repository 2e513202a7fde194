"""What answers where plain least squares policy evaluation blows up, or is about to.

The iteration converges iff the spectral radius of discount Sigma^-1 C is below 1. Where it is not, or so
little below that the limit on iterations ends it, three others are tried; the first *plausible* one answers:

    lstd     the fixed point (Sigma - discount C) theta = b, which exists there too
    ball     ||theta|| <= W in each regression, as in Algorithm 1 of Chang et al. (2022); W is a multiple of
             what rewards allow over the features' length, and half of W must answer the same. (Where the
             operator is well above 1 the iterates lie on the ball's surface, and W alone decides.)
    ridge    (Sigma + ridge) theta_k = b + discount C theta_{k-1} with the smallest ridge that contracts;
             a constant feature is left free, so that a large ridge says "the mean reward, for ever", not 0

Plausible: the value at the starts and nearly all values at logged pairs lie within what rewards allow, and
two halves of the units, each fitted alone, say about the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from bcrl.estimate import FloatArray, Status
from bcrl.linear.lspe import LSPESolution, ball_multiplier, lspe
from bcrl.linear.moments import Moments, whiten

Kind = Literal["lstd", "ball", "ridge"]
KINDS: tuple[Kind, ...] = ("lstd", "ball", "ridge")
_BALLS = (4.0, 2.0, 1.0)
# Share of itself by which a ball's value may differ from that of half the ball.
_HALF_BALL = 0.1
_RIDGES = tuple(10.0**power for power in range(-7, 3))
# Values may stick out of the range by this share of it, and this share of logged pairs may lie outside.
_SLACK, _OUTSIDE = 0.1, 0.05
# Halves of the units may differ by this share of the larger of value and scale.
_HALVES = 0.5


@dataclass(frozen=True, eq=False)
class Range:
    """What rewards allow a value to be: [low, high], in the reward's unit."""

    low: float
    high: float

    @classmethod
    def of(cls, rewards: FloatArray, *, ends: bool, discount: float, horizon: int | None) -> "Range":
        """From the smallest and the largest reward logged; a world that ends can also give nothing more."""
        if discount == 1.0:
            steps = float(horizon or 0)
        else:
            steps = (1.0 - (0.0 if horizon is None else discount**horizon)) / (1.0 - discount)
        low, high = float(rewards.min()) * steps, float(rewards.max()) * steps
        return cls(min(low, 0.0), max(high, 0.0)) if ends else cls(low, high)

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high))

    def outside(self, values: FloatArray) -> float:
        """Share of values that lie outside, beyond a slack; values that are not finite do."""
        slack = _SLACK * max(self.high - self.low, _SLACK * self.largest)
        return float(np.mean(~((values >= self.low - slack) & (values <= self.high + slack))))


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a candidate is judged by.

    Attributes:
        moments: of all transitions.
        halves: of two disjoint halves of the units; empty where there is one unit.
        x0: mean of phi(s0, pi), shape (d,).
        probes: phi at logged pairs and at next states with the policy's action, shape (m, d).
        allowed: what rewards allow.
        free: number of the constant feature; None where there is none.
    """

    moments: Moments
    halves: tuple[Moments, ...]
    x0: FloatArray
    probes: FloatArray
    allowed: Range
    free: int | None

    def plausible(self, theta: FloatArray, halves: list[FloatArray | None]) -> bool:
        value = float(self.x0 @ theta)
        if not np.isfinite(theta).all() or self.allowed.outside(np.array([value])) > 0.0:
            return False
        if self.allowed.outside(self.probes @ theta) > _OUTSIDE:
            return False
        if any(half is None for half in halves):
            return False
        ends = np.array([float(self.x0 @ half) for half in halves if half is not None] or [value])
        typical = float(np.sqrt(np.mean((self.probes @ theta) ** 2)))
        return bool(np.ptp(ends) <= _HALVES * max(abs(value), typical))


@dataclass(frozen=True, eq=False)
class Fallback:
    """Which of the three answered.

    Attributes:
        kind: lstd, ball or ridge.
        size: W of the ball; the ridge in units of Sigma's mean eigenvalue; 0 for lstd.
        first: the plain solution that it stands in for.
    """

    kind: Kind
    size: float
    first: LSPESolution


def fall_back(first: LSPESolution, evidence: Evidence) -> tuple[LSPESolution, Fallback] | None:
    """The first plausible stand-in, in the order of the module's docstring; None where there is none."""
    for kind, size, solution, halves in _candidates(first, evidence):
        if evidence.plausible(solution.theta, halves):
            return solution, Fallback(kind, size, first)
    return None


def _candidates(
    first: LSPESolution, evidence: Evidence
) -> Iterator[tuple[Kind, float, LSPESolution, list[FloatArray | None]]]:
    """Every stand-in with the weights that each half of the units gives it, made when it is its turn."""
    moments, discount, horizon = evidence.moments, first.discount, first.horizon
    if horizon is None and first.lstd is not None:
        point = replace(first, theta=first.lstd, previous=first.lstd, status=Status.CONVERGED)
        again = [lspe(half, discount, iterations=1, ridge=first.ridge).lstd for half in evidence.halves]
        yield "lstd", 0.0, point, again
    unit = evidence.allowed.largest / np.sqrt(np.trace(moments.mean.sigma))
    balls = [(factor * unit, *_with_ball(first, evidence, factor * unit)) for factor in _BALLS if unit > 0.0]
    for (radius, solution, halves), (_, smaller, _) in pairwise(balls):
        value, other = float(evidence.x0 @ solution.theta), float(evidence.x0 @ smaller.theta)
        if abs(value - other) <= _HALF_BALL * abs(value):
            yield "ball", radius, solution, halves
    for ridge in _RIDGES:
        if ridge > first.ridge:
            solutions = [
                lspe(
                    part,
                    discount,
                    start_features=evidence.x0,
                    horizon=horizon,
                    ridge=ridge,
                    free=evidence.free,
                )
                for part in (moments, *evidence.halves)
            ]
            if horizon is None and solutions[0].status is not Status.CONVERGED:
                continue
            yield "ridge", ridge, solutions[0], [one.theta for one in solutions[1:]]


def _with_ball(
    first: LSPESolution, evidence: Evidence, radius: float
) -> tuple[LSPESolution, list[FloatArray | None]]:
    """LSPE in the ball. Its end is the fixed point with the ridge mu, the constraint's multiplier, so errors
    are those of that ridge."""
    parts = [
        lspe(
            part,
            first.discount,
            start_features=evidence.x0,
            horizon=first.horizon,
            solver="ball",
            radius=radius,
        )
        for part in (evidence.moments, *evidence.halves)
    ]
    whole, mean = parts[0], evidence.moments.mean
    eigenvalues, vectors = np.linalg.eigh(mean.sigma)
    kept = eigenvalues > len(eigenvalues) * np.finfo(np.float64).eps * eigenvalues[-1]
    pull = vectors[:, kept].T @ (mean.b + first.discount * mean.c @ whole.previous)
    multiplier = ball_multiplier(pull, eigenvalues[kept], radius)
    scale = float(np.trace(mean.sigma)) / mean.dim
    whitening = whiten(mean.sigma, ridge=max(multiplier / scale, first.ridge))
    solution = replace(
        whole,
        whitening=whitening,
        operator=whitening.operator(mean.c, first.discount),
        constant=whitening.matrix.T @ mean.b,
    )
    return solution, [part.theta for part in parts[1:]]
