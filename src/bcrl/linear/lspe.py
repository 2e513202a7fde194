"""Least squares policy evaluation from moments, and its fixed point.

    theta_0 = 0,   theta_k = argmin_theta E_D (theta^T phi - r - discount theta_{k-1}^T phi')^2  (Algorithm 1)

Unconstrained, theta_k = Sigma^{-1}(b + discount C theta_{k-1}), which costs O(d^2) once Sigma is factorised,
whatever the number of transitions. It converges iff the spectral radius of A = discount Sigma^{-1} C is below
1; the fixed point (Sigma - discount C) theta = b is LSTD, which also exists when the iteration blows up, so
both are given.

Chang et al. (2022) constrain ||theta|| <= W; their released code uses a float32 pseudo-inverse instead. Here:
a small ridge by default, the pseudo-inverses and the ball on request; fallback.py has what answers where the
plain iteration blows up. Iterations run in whitened coordinates (`whiten`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from scipy import linalg

from bcrl.errors import BadInput
from bcrl.estimate import FloatArray, Status
from bcrl.linear.moments import DEFAULT_RIDGE, Moments, Whitening, whiten

Solver = Literal["cholesky", "pinv", "pinv32", "ball"]
_BLOCK = 512
_BALL_STEPS = 200
# Squares of anything below this stay finite in float64.
_OVERFLOW = 1e140
_SINGULAR = 1e-12
# A step below this share of the iterate is rounding: all later iterates of a horizon are this one.
_ROUNDING = 1e-15
# Without a horizon: enough for discounts up to 0.9998, and the iterates of 600 features fit into a GB.
_MOST_ITERATIONS = 100_000
# The radius is marginal from 1 - _MARGIN (1 - discount) on: there the iteration is cut long before its end.
_MARGIN = 0.1


@dataclass(frozen=True, eq=False)
class LSPESolution:
    """What the iteration came to.

    Attributes:
        theta: the last finite iterate, shape (d,).
        previous: the iterate before it, shape (d,).
        status: converged, horizon, limit or diverged.
        iterations: number of iterations done, K.
        curve: start_features @ theta_k after iterations 1..K, shape (K,) or (K, m); None without start
            features.
        residuals: mean squared residual of each regression, shape (K,).
        changes: L2(nu) norm of theta_k^T phi - theta_{k-1}^T phi, shape (K,).
        whitening: how Sigma was inverted: its ridge, and the directions that a pseudo-inverse left out.
        operator: A in whitened coordinates, shape (rank, rank).
        constant: Sigma^{-1} b in whitened coordinates, shape (rank,).
        discount, horizon, solver, ridge, radius: what `lspe` was called with.
    """

    theta: FloatArray
    previous: FloatArray
    status: Status
    iterations: int
    curve: FloatArray | None
    residuals: FloatArray
    changes: FloatArray
    whitening: Whitening
    operator: FloatArray
    constant: FloatArray
    discount: float
    horizon: int | None
    solver: Solver
    ridge: float
    radius: float | None = None

    @cached_property
    def spectral_radius(self) -> float:
        """Largest |eigenvalue| of A; the iteration converges iff it is below 1. O(d^3), when asked for."""
        return spectral_radius(self.operator)

    @property
    def blows_up(self) -> bool:
        """Whether the plain iteration may have no answer of its own: it diverged, or its radius is marginal.

        A finite horizon ends any growth: there the value must also be more than rewards allow.
        """
        if self.solver == "ball":
            return False
        if self.status is Status.DIVERGED:
            return True
        if self.horizon is None:
            marginal = 1.0 - _MARGIN * (1.0 - self.discount)
            return self.status is Status.LIMIT and self.spectral_radius >= marginal
        return self.spectral_radius >= 1.0

    @cached_property
    def lstd(self) -> FloatArray | None:
        """The fixed point theta = (Sigma - discount C)^{-1} b, shape (d,); None where it does not exist."""
        weights = fixed_point(self.operator, self.constant)
        return None if weights is None else np.asarray(self.whitening.matrix @ weights)


def lspe(
    moments: Moments,
    discount: float,
    *,
    start_features: FloatArray | None = None,
    iterations: int | None = None,
    horizon: int | None = None,
    tolerance: float = 1e-6,
    ridge: float = DEFAULT_RIDGE,
    solver: Solver = "cholesky",
    radius: float | None = None,
    free: int | None = None,
) -> LSPESolution:
    """Iterate least squares policy evaluation.

    Args:
        moments: sums over the transitions.
        discount: in [0, 1); 1 is allowed with a horizon.
        start_features: phi(s0, pi), (d,) for one curve or (m, d) for m curves.
        iterations: at most this many; None means 20 / (1 - discount), and no more than 100 000.
        horizon: value of this many steps: `horizon` iterations, or so many that the rest would change
            nothing.
        tolerance: stop when the relative change of the value function in L2(nu) is below this; 0 never stops
            early.
        ridge: for the Cholesky solver, in units of tr(Sigma) / d.
        solver: how each regression is solved; "ball" constrains ||theta||_2 <= radius.
        radius: W of the ball.
        free: a feature that the ridge leaves alone, as in `whiten`.
    """
    limit = _limit(discount, iterations, horizon)
    mean = moments.mean
    whitening = whiten(mean.sigma, inverse="pinv" if solver == "ball" else solver, ridge=ridge, free=free)
    operator = whitening.operator(mean.c, discount)
    coordinates = _coordinates(mean, discount, whitening, operator, solver, radius)
    path = _iterate(coordinates, limit, tolerance if horizon is None else _ROUNDING)
    thetas = path.iterates @ coordinates.basis.T
    return LSPESolution(
        theta=thetas[-1].copy(),
        previous=thetas[max(len(thetas) - 2, 0)].copy(),
        status=_final_status(path, operator, horizon is not None, coordinates.project is not None),
        iterations=len(path.changes),
        curve=None if start_features is None else thetas[1:] @ np.asarray(start_features, dtype=np.float64).T,
        residuals=_residuals(mean, discount, thetas),
        changes=path.changes,
        whitening=whitening,
        operator=operator,
        constant=whitening.matrix.T @ mean.b,
        discount=discount,
        horizon=horizon,
        solver=solver,
        ridge=ridge,
        radius=radius,
    )


def _limit(discount: float, iterations: int | None, horizon: int | None) -> int:
    if not 0.0 <= discount <= 1.0 or (discount == 1.0 and horizon is None):
        raise BadInput(f"discount is {discount}; expected 0 <= discount < 1, or 1 together with a horizon.")
    limit = horizon if horizon is not None else iterations
    if limit is not None and limit < 1:
        raise BadInput(
            f"{'horizon' if horizon is not None else 'iterations'} is {limit}; expected at least 1."
        )
    if limit is not None:
        return limit
    return min(math.ceil(round(20.0 / (1.0 - discount), 6)), _MOST_ITERATIONS)


@dataclass(frozen=True, eq=False)
class _Coordinates:
    """theta = basis @ u;  u_k = project(constant + step @ u_{k-1});  ||theta^T phi||_nu = ||weight * u||."""

    basis: FloatArray
    constant: FloatArray
    step: FloatArray
    weight: FloatArray | None
    project: Callable[[FloatArray], FloatArray] | None


def _coordinates(
    mean: Moments,
    discount: float,
    whitening: Whitening,
    operator: FloatArray,
    solver: Solver,
    radius: float | None,
) -> _Coordinates:
    if solver != "ball":
        return _Coordinates(whitening.matrix, whitening.matrix.T @ mean.b, operator, None, None)
    if radius is None or radius <= 0.0:
        raise BadInput(
            f"solver='ball' needs the radius W of the ball; got {radius}, expected a number above 0."
        )
    # The columns of a pseudo-inverse's F are orthogonal, of length 1 / sqrt(eigenvalue): Sigma's eigenbasis.
    root = 1.0 / np.linalg.norm(whitening.matrix, axis=0)
    basis = whitening.matrix * root
    step = discount * (basis.T @ mean.c @ basis)
    return _Coordinates(basis, basis.T @ mean.b, step, root, ball_projection(root**2, radius))


@dataclass(frozen=True, eq=False)
class _Path:
    iterates: FloatArray
    changes: FloatArray
    status: Status


def _iterate(coordinates: _Coordinates, limit: int, tolerance: float) -> _Path:
    """All iterates u_0 = 0 .. u_K, and why it stopped."""
    blocks = [np.zeros((1, len(coordinates.constant)))]
    changes: list[float] = []
    current, status = blocks[0][0], Status.LIMIT
    with np.errstate(over="ignore", invalid="ignore"):
        while status is Status.LIMIT and len(changes) < limit:
            block = np.empty((min(_BLOCK, limit - len(changes)), len(current)))
            for row in range(len(block)):
                following = coordinates.constant + coordinates.step @ current
                if coordinates.project is not None:
                    following = coordinates.project(following)
                size, change = (
                    _norm(following, coordinates.weight),
                    _norm(following - current, coordinates.weight),
                )
                if not size < _OVERFLOW:
                    status = Status.DIVERGED
                    block = block[:row]
                    break
                block[row] = current = following
                changes.append(change)
                if tolerance > 0.0 and change <= tolerance * size:
                    status = Status.CONVERGED
                    block = block[: row + 1]
                    break
            blocks.append(block)
    return _Path(np.concatenate(blocks), np.array(changes), status)


def _norm(vector: FloatArray, weight: FloatArray | None) -> float:
    scaled = vector if weight is None else weight * vector
    return math.sqrt(float(scaled @ scaled))


def _final_status(path: _Path, operator: FloatArray, fixed_horizon: bool, bounded: bool) -> Status:
    """A limit that was reached while the changes grew, with a spectral radius of 1 or more, is divergence."""
    if fixed_horizon:
        return Status.DIVERGED if path.status is Status.DIVERGED else Status.HORIZON
    if path.status is not Status.LIMIT:
        return path.status
    growing = path.changes[-1] >= path.changes[len(path.changes) // 2] > 0.0
    return Status.DIVERGED if growing and not bounded and spectral_radius(operator) >= 1.0 else Status.LIMIT


def spectral_radius(operator: FloatArray) -> float:
    """Largest |eigenvalue|."""
    return float(np.abs(linalg.eigvals(operator)).max())


def _residuals(mean: Moments, discount: float, thetas: FloatArray) -> FloatArray:
    """E_D (theta_k^T phi - r - discount theta_{k-1}^T phi')^2 for k = 1..K."""
    out = np.empty(len(thetas) - 1)
    for first in range(0, len(out), _BLOCK):
        old, new = thetas[first : first + _BLOCK], thetas[first + 1 : first + _BLOCK + 1]
        old = old[: len(new)]
        target = mean.b + discount * (old @ mean.c.T)
        target_square = mean.reward_square + np.einsum(
            "kd,kd->k", old, 2.0 * discount * mean.e + discount**2 * (old @ mean.sigma_next)
        )
        out[first : first + len(new)] = target_square + np.einsum(
            "kd,kd->k", new, new @ mean.sigma - 2.0 * target
        )
    return np.maximum(out, 0.0)


def fixed_point(operator: FloatArray, constant: FloatArray) -> FloatArray | None:
    """u = constant + operator u; None where I - operator is numerically singular."""
    system = np.eye(len(operator)) - operator
    factor, pivots, info = linalg.lapack.dgetrf(system)
    norm = float(np.abs(system).sum(axis=0).max())
    if info != 0 or linalg.lapack.dgecon(factor, norm)[0] < _SINGULAR:
        return None
    return np.asarray(linalg.lu_solve((factor, pivots), constant, check_finite=False))


def ball_projection(eigenvalues: FloatArray, radius: float) -> Callable[[FloatArray], FloatArray]:
    """The map y -> theta of least squares in a ball, both in the eigenbasis of Sigma.

        min_theta  theta^T Sigma theta - 2 y^T theta   s.t.  ||theta||_2 <= W

    has the solution theta = (Sigma + mu I)^{-1} y with mu >= 0 and mu (||theta|| - W) = 0. This is the
    constraint of Algorithm 1: the Sigma-norm projection of the least squares solution on B_W, not a rescaling
    of it.

    Args:
        eigenvalues: of Sigma, all above 0, shape (r,).
        radius: W.
    """

    def project(y: FloatArray) -> FloatArray:
        return np.asarray(y / (eigenvalues + ball_multiplier(y, eigenvalues, radius)))

    return project


def ball_multiplier(y: FloatArray, eigenvalues: FloatArray, radius: float) -> float:
    """The multiplier mu >= 0 of the constraint; 0 where the least squares solution lies in the ball.

    n(mu)^2 = sum_i y_i^2 / (D_i + mu)^2 = W^2 is solved by Newton on 1/n - 1/W, which is concave and
    increasing: started left of the root the steps stay left of it and converge quadratically.
    """
    if float(np.linalg.norm(y / eigenvalues)) <= radius:
        return 0.0
    mu = max(0.0, float(np.linalg.norm(y)) / radius - float(eigenvalues.max()))
    for _ in range(_BALL_STEPS):
        scaled = y / (eigenvalues + mu)
        norm = float(np.linalg.norm(scaled))
        if norm <= radius * (1.0 + 1e-14):
            break
        mu += norm**2 / float(np.sum(scaled**2 / (eigenvalues + mu))) * (norm - radius) / radius
    return mu
