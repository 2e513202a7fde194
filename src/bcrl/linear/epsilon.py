"""eps_nu, the paper's completeness error (Chang et al. 2022, Definition 1): exact, or two certified ends.

    eps_nu = max over ||w1|| <= W  of  min over ||w2|| <= W  of  || w2^T phi - r - discount w1^T gbar ||_nu

With u = rho + A w1, the best answer in the whole span, and R, c, r0 of completeness.py, its square is the
maximum of

    F(w1) = w1^T R w1 + 2 c^T w1 + r0  +  min over ||w2|| <= W of (w2 - u)^T Sigma (w2 - u),

a convex function, so its maximum lies on the sphere. Where every u lies in the ball the second part is zero
and the maximum is a secular equation: exact. Else

    lower: ascent from many starts, w1 <- W grad F / ||grad F||, which never falls; F is exact
    upper: the answer w2 = (Sigma + mu I)^{-1} Sigma u, linear in w1, with the smallest mu that keeps it in
           the ball for every w1: what it misses is a quadratic again, whose maximum is exact.
"""

import math
from dataclasses import dataclass

import numpy as np

from bcrl.estimate import FloatArray
from bcrl.linear.completeness import BellmanResidual
from bcrl.linear.lspe import ball_multiplier

_STARTS, _ASCENTS, _BISECTIONS = 12, 60, 40


@dataclass(frozen=True, eq=False)
class EpsilonNu:
    """eps_nu of Definition 1.

    Attributes:
        lower, upper: eps_nu lies between them, in the reward's unit; equal where `exact`.
        worst: target weights w1 whose backup is missed by `lower`, shape (d,), ||w1|| = W.
        exact: whether the best answers stay in the ball, so that nothing had to be searched.
        noise_removed: as in the residual; if not, the noise of random transitions is in both ends.
    """

    lower: float
    upper: float
    worst: FloatArray
    exact: bool
    noise_removed: bool


@dataclass(frozen=True, eq=False)
class Backups:
    """Backups of w1^T phi and their answers in the ball, in the eigenbasis of the answer's Sigma.

    Parts outside of Sigma's range cost nothing and are left out.

    Attributes:
        residual: of the backups, as the answering features see them.
        radius: W of the ball.
        rho, operator: the best answer in the whole span is rho + operator w1, shapes (r,) and (r, d).
        spread: Sigma's eigenvalues above 0, shape (r,).
    """

    residual: BellmanResidual
    radius: float
    rho: FloatArray
    operator: FloatArray
    spread: FloatArray

    @classmethod
    def of(cls, residual: BellmanResidual, radius: float) -> "Backups":
        eigenvalues, vectors = np.linalg.eigh(residual.sigma)
        kept = eigenvalues > 1e-13 * max(float(eigenvalues[-1]), 1e-300)
        span = vectors[:, kept]
        return cls(residual, radius, span.T @ residual.rho, span.T @ residual.operator, eigenvalues[kept])

    def missed(self, w: FloatArray) -> tuple[float, FloatArray]:
        """F(w), the square of what the best answer in the ball misses of w's backup, and half its slope."""
        u = self.rho + self.operator @ w
        mu = ball_multiplier(self.spread * u, self.spread, self.radius)
        beside = mu / (self.spread + mu) * u  # u - w2
        value = _quadratic(self.residual, w) + float(beside @ (self.spread * beside))
        slope = self.residual.transition @ w + self.residual.cross + self.operator.T @ (self.spread * beside)
        return value, slope


def epsilon_nu(residual: BellmanResidual, radius: float) -> EpsilonNu:
    """Largest distance from the backup of w1^T phi to the w2^T phi, both weights within `radius`; O(d^3)."""
    free = maximise_in_ball(residual.transition, residual.cross, radius)
    backups = Backups.of(residual, radius)
    if _largest(backups.rho, backups.operator, radius) <= radius * (1.0 + 1e-9):
        value = _root(_quadratic(residual, free))
        return EpsilonNu(value, value, free, True, residual.noise_removed)
    lower, worst = _ascend(backups, free)
    upper = max(_affine_bound(backups), lower)
    return EpsilonNu(lower, upper, worst, False, residual.noise_removed)


def _quadratic(residual: BellmanResidual, w: FloatArray) -> float:
    return float(w @ (residual.transition @ w + 2.0 * residual.cross)) + residual.reward


def _root(square: float) -> float:
    return math.sqrt(max(square, 0.0))


def _largest(rho: FloatArray, operator: FloatArray, radius: float) -> float:
    """max over ||w|| <= radius of ||rho + A w||."""
    w = maximise_in_ball(operator.T @ operator, operator.T @ rho, radius)
    return float(np.linalg.norm(rho + operator @ w))


def _ascend(backups: Backups, free: FloatArray) -> tuple[float, FloatArray]:
    """The largest sqrt F that the ascents find, and where."""
    rho, operator, radius = backups.rho, backups.operator, backups.radius
    reach = maximise_in_ball(operator.T @ operator, operator.T @ rho, radius)
    curve = backups.residual.transition + operator.T @ (backups.spread[:, None] * operator)
    top = np.linalg.eigh(curve)[1][:, -2:].T
    draws = np.random.default_rng(0).normal(size=(_STARTS, len(free)))
    best, worst = -np.inf, free
    for start in [free, reach, *top, *-top, *draws]:
        w, before = start * (radius / np.linalg.norm(start)), -np.inf
        for _ in range(_ASCENTS):
            value, slope = backups.missed(w)
            if value > best:
                best, worst = value, w
            if value <= before * (1.0 + 1e-10):
                break
            w, before = slope * (radius / max(float(np.linalg.norm(slope)), 1e-300)), value
    return _root(best), worst


def _affine_bound(backups: Backups) -> float:
    """What the best linear answer (Sigma + mu I)^{-1} Sigma (rho + A w1) in the ball misses at most."""
    residual, radius, spread = backups.residual, backups.radius, backups.spread
    rho, operator = backups.rho, backups.operator

    def missed(mu: float) -> float:
        share = mu / (spread + mu)
        left, moved = share * rho, share[:, None] * operator
        matrix = residual.transition + moved.T @ (spread[:, None] * moved)
        linear = residual.cross + moved.T @ (spread * left)
        w = maximise_in_ball(matrix, linear, radius)
        return _root(float(w @ (matrix @ w + 2.0 * linear)) + residual.reward + float(left @ (spread * left)))

    def fits(mu: float) -> bool:
        kept = spread / (spread + mu)
        return _largest(kept * rho, kept[:, None] * operator, radius) <= radius

    low = 1e-12 * float(spread[-1])
    high = low
    while not fits(high):
        low, high = high, 16.0 * high
    for _ in range(_BISECTIONS):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if fits(middle) else (middle, high)
        if high <= low * (1.0 + 1e-6):
            break
    return missed(high)


def maximise_in_ball(matrix: FloatArray, linear: FloatArray, radius: float) -> FloatArray:
    """argmax of w^T matrix w + 2 linear^T w over ||w|| <= radius, matrix positive semi-definite.

    The solution lies on the sphere and solves (mu I - matrix) w = linear with mu >= lambda_max: a secular
    equation with one root right of lambda_max, except in the hard case, where `linear` has no part along the
    top eigenvectors and any remainder of the norm goes there.
    """
    eigenvalues, vectors = np.linalg.eigh(matrix)
    top, slope = float(eigenvalues[-1]), vectors.T @ linear
    length = float(np.linalg.norm(slope))
    scale = max(top, length / radius)
    if scale == 0.0:
        return np.asarray(radius * vectors[:, -1])
    gaps = top - eigenvalues
    near = gaps <= 1e-12 * scale
    rest = np.divide(slope, gaps, out=np.zeros_like(slope), where=~near)
    if np.linalg.norm(slope[near]) <= 1e-13 * scale * radius and np.linalg.norm(rest) <= radius:
        rest[-1] = np.sqrt(max(radius**2 - float(rest @ rest), 0.0))
        return np.asarray(vectors @ rest)
    excess = _secular_root(gaps, slope, radius, length / radius)
    weights = slope / (gaps + excess)
    return np.asarray(vectors @ (weights * (radius / np.linalg.norm(weights))))


def _secular_root(gaps: FloatArray, slope: FloatArray, radius: float, upper: float) -> float:
    """t in (0, upper] with || slope / (gaps + t) || = radius; bisection in log t, as the root may hug 0."""
    low, high = upper * 1e-30, upper
    for _ in range(200):
        middle = float(np.sqrt(low * high))
        if np.linalg.norm(slope / (gaps + middle)) > radius:
            low = middle
        else:
            high = middle
        if high <= low * (1.0 + 1e-15):
            break
    return high
