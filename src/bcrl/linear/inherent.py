"""The inherent Bellman error of a class of representations: the paper's comparison of BCRL with FQE.

FQE over the class F = {w^T phi : phi in Phi, ||w|| <= W} can end, with infinite data, as far off as

    eps_ibe = max over f in F  of  min over g in F  of  || g - T f ||_nu^2

(Chang et al. 2022, section 4.2), because some f of some other phi has a backup that no member of F is near.
BCRL pays the eps_nu of the one phi that it learns; that Phi holds a complete phi does not make eps_ibe small.

For a backup of phi_i and answers by phi_j the error is a convex function of w, whose maximum epsilon.py
brackets. Over all answers it is a minimum of such functions:

    lower: the value at any w is exact (ball.py), and many w are tried
    upper: max_w min_j is at most min_j max_w
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bcrl.errors import BadInput
from bcrl.estimate import FloatArray
from bcrl.linear.completeness import BellmanResidual, residual_of_means
from bcrl.linear.epsilon import Backups, EpsilonNu, epsilon_nu
from bcrl.linear.moments import whiten

_DRAWS, _ASCENTS = 24, 20
_SHARES = (0.25, 0.5, 0.75, 1.0)  # of the radius: a minimum of convex functions may be largest inside


@dataclass(frozen=True, eq=False)
class Candidate:
    """A representation of the class, on the support of nu.

    Attributes:
        phi: phi(s, a), shape (n, d); d may differ between candidates.
        ahead: E[phi(s', pi) | s, a], zero where the world ends, shape (n, d).
    """

    phi: FloatArray
    ahead: FloatArray


@dataclass(frozen=True, eq=False)
class InherentBellmanError:
    """eps_ibe of a class, beside the eps_nu of each of its representations.

    Attributes:
        lower, upper: the paper's eps_ibe, a squared norm, lies between them; equal up to rounding where one
            representation answers the worst backup best whatever the weights.
        worst: the representation whose backup is missed by `lower`, and its weights w1.
        own: eps_nu (not squared) of each representation by itself: what LSPE pays on it.
    """

    lower: float
    upper: float
    worst: tuple[str, FloatArray]
    own: Mapping[str, EpsilonNu]


def inherent_bellman_error(
    candidates: Mapping[str, Candidate],
    rewards: FloatArray,
    *,
    discount: float,
    radius: float,
    weights: FloatArray | None = None,
) -> InherentBellmanError:
    """eps_ibe of the class of these representations.

    Args:
        candidates: the class Phi, by name.
        rewards: r(s, a), shape (n,).
        discount: of the backup.
        radius: W.
        weights: nu of each row, shape (n,); None weighs all rows alike.
    """
    if not candidates:
        raise BadInput("candidates is empty; expected at least one representation.")
    shares = np.full(len(rewards), 1.0 / len(rewards)) if weights is None else weights / weights.sum()
    lower, upper, worst, own = -np.inf, 0.0, ("", np.zeros(0)), {}
    for name, backed in candidates.items():
        seen = [_seen_by(other, backed, rewards, shares, discount) for other in candidates.values()]
        brackets = [epsilon_nu(one, radius) for one in seen]
        own[name] = brackets[list(candidates).index(name)]
        upper = max(upper, min(bracket.upper for bracket in brackets) ** 2)
        starts = [bracket.worst for bracket in brackets]
        found, w = _search([Backups.of(one, radius) for one in seen], starts, radius)
        if found > lower:
            lower, worst = found, (name, w)
    return InherentBellmanError(lower, max(upper, lower), worst, own)


def _seen_by(
    answer: Candidate, backed: Candidate, rewards: FloatArray, shares: FloatArray, discount: float
) -> BellmanResidual:
    """What answers w2^T phi_j leave of backups r + discount w1^T E[phi_i' | s, a]."""
    weighed = answer.phi * shares[:, None]
    sigma = weighed.T @ answer.phi
    return residual_of_means(
        whiten(sigma, inverse="pinv"),
        sigma=sigma,
        c=weighed.T @ backed.ahead,
        b=weighed.T @ rewards,
        second=(backed.ahead * shares[:, None]).T @ backed.ahead,
        e=(backed.ahead * shares[:, None]).T @ rewards,
        reward_square=float(shares @ rewards**2),
        discount=discount,
    )


def _search(answers: list[Backups], starts: list[FloatArray], radius: float) -> tuple[float, FloatArray]:
    """The largest min over answers of F that was found, and where; uphill on the best answer."""
    draws = np.random.default_rng(0).normal(size=(_DRAWS, len(starts[0])))
    best, worst = -np.inf, starts[0]
    for start in [*starts, *(-one for one in starts), *draws]:
        for share in _SHARES:
            w = start * (share * radius / max(float(np.linalg.norm(start)), 1e-300))
            for _ in range(_ASCENTS if share == 1.0 else 1):
                value, slope = min((one.missed(w) for one in answers), key=lambda found: found[0])
                if value <= best * (1.0 + 1e-12):
                    break
                best, worst = value, w
                w = slope * (radius / max(float(np.linalg.norm(slope)), 1e-300))
    return max(best, 0.0), worst
