"""Where the policy goes, as weights of logged transitions.

    w_i = u^T phi(s_i, a_i),    (Sigma + ridge - discount C)^T u = x0 + ridge u_1,   x0 = E phi(s0, pi)

where u_1 solves the same without the last term: the ridge's bias is then of second order (iterated
Tikhonov), so that the mean of w f over the log is the expected discounted sum of f along the policy's way,
as far as phi sees it; mass that terminates is lost, since C holds nothing after an end. Weights of a policy
must conserve flow,

    E_log[w (g(s, a) - discount g(s', pi))] = E[g(s0, pi)]    for every function g,

which is measured on units that the weights were not made from, over all g = v^T phi of mean square 1. The
ridge is the smallest whose error is at most twice the least: the error counts noise in every direction
alike, and by itself would choose ridges that bias the few directions that matter.
"""

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from bcrl.estimate import FloatArray
from bcrl.linear import Moments

RIDGES = tuple(10.0**power for power in range(-6, 3))
_NEARLY_LEAST = 2.0


@dataclass(frozen=True, eq=False)
class Occupancy:
    """The weights, and the value of any reward under them.

    Attributes:
        system: Sigma + ridge - discount C, shape (d, d).
        added: the ridge on each feature, shape (d,).
        weights: u, shape (d,).
        ridge: in units of Sigma's mean eigenvalue.
        flow_error: how far held-out units are from conserving flow, relative to the starts' own length.
    """

    system: FloatArray
    added: FloatArray
    weights: FloatArray
    ridge: float
    flow_error: float

    def value_weights(self, correlation: FloatArray) -> FloatArray:
        """theta with theta^T phi(s, pi) = expected discounted sum of a reward f from s on, shape (d,).

        Args:
            correlation: E_log[phi(s, a) f], shape (d,).
        """
        return _iterated(self.system, self.added, correlation)


def occupancy(
    folds: list[Moments], discount: float, x0: FloatArray, free: int | None, ridge: float | None
) -> Occupancy:
    """The policy's occupancy.

    Args:
        folds: moments of disjoint groups of units, together all of the log.
        discount: of the value.
        x0: mean of phi(s0, pi), shape (d,).
        free: number of the constant feature, which carries no ridge; None where there is none.
        ridge: in units of Sigma's mean eigenvalue; None: chosen.
    """
    total = _add(folds)
    candidates = RIDGES if ridge is None else (ridge,)
    losses = [_flow_error(folds, discount, x0, free, one) for one in candidates]
    best = next(k for k, loss in enumerate(losses) if loss <= _NEARLY_LEAST * min(losses))
    system, added = ridged(total, discount, free, candidates[best])
    return Occupancy(system, added, _iterated(system.T, added, x0), candidates[best], losses[best])


def _flow_error(
    folds: list[Moments], discount: float, x0: FloatArray, free: int | None, ridge: float
) -> float:
    """Length of x0 - E_held[(phi - discount phi') w] over that of x0, dual to the features' L2 norm."""
    total, errors = _add(folds), []
    metric = total.mean.sigma + 1e-6 * np.trace(total.mean.sigma) / total.dim * np.eye(total.dim)
    factor = linalg.cho_factor(metric)
    for own in range(len(folds)):
        rest = _add([part for k, part in enumerate(folds) if k != own] or folds)
        system, added = ridged(rest, discount, free, ridge)
        u = _iterated(system.T, added, x0)
        held = folds[own].mean
        gap = x0 - (held.sigma - discount * held.c).T @ u
        errors.append(float(gap @ linalg.cho_solve(factor, gap)))
    return float(np.sqrt(np.mean(errors) / (x0 @ linalg.cho_solve(factor, x0))))


def _iterated(system: FloatArray, added: FloatArray, right: FloatArray) -> FloatArray:
    """system^-1 (right + added * system^-1 right)."""
    factor = linalg.lu_factor(system)
    once = linalg.lu_solve(factor, right)
    return np.asarray(once + linalg.lu_solve(factor, added * once))


def ridged(
    moments: Moments, discount: float, free: int | None, ridge: float
) -> tuple[FloatArray, FloatArray]:
    """Sigma + ridge - discount C, and the ridge by feature; `ridge` is in units of the mean eigenvalue."""
    mean = moments.mean
    added = np.full(mean.dim, ridge * float(np.trace(mean.sigma)) / mean.dim)
    if free is not None:
        added[free] = 0.0
    return np.asarray(mean.sigma - discount * mean.c + np.diag(added)), added


def _add(parts: list[Moments]) -> Moments:
    return sum(parts[1:], start=parts[0])
