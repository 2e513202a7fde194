"""The right-hand sides of the paper's theorems, and the map between linear completeness and (rho, M).

Chang et al. (2022): Theorem 1 (sample complexity of LSPE), Theorem 2 (representation learning), Theorem 3
(end to end), and the proposition that a representation is linear Bellman complete iff discount E[phi' | s, a]
= M phi and r = rho^T phi.

The theorems assume |r| <= 1 and ||phi|| <= 1. For other bounds R and F the same statement holds for r / R and
phi / F with W F / R in place of W, and is scaled back by R: that is what `reward_bound` and `feature_bound`
do. Constants stand as printed in the theorems; the proof of Theorem 2 has 96 x 4 sqrt(d) where the statement
has 4 sqrt(d).
"""

import math
from dataclasses import dataclass

import numpy as np

from bcrl.errors import BadInput
from bcrl.estimate import FloatArray


@dataclass(frozen=True)
class Bound:
    """A theorem's right-hand side.

    Attributes:
        terms: by name; None where kappa or the density ratio is unknown.
        total: the sum; None when a term is unknown.
        largest: the largest possible |value|, reward_bound / (1 - discount).
        precondition: whether the theorem's condition on N holds; None where it has none.
        required: the N that the condition asks for; None where it has none.
    """

    terms: dict[str, float | None]
    largest: float
    precondition: bool | None = None
    required: float | None = None

    @property
    def known(self) -> float:
        """The sum of the computable terms: a lower limit of the bound."""
        return sum(term for term in self.terms.values() if term is not None)

    @property
    def total(self) -> float | None:
        return None if any(term is None for term in self.terms.values()) else self.known

    @property
    def vacuous(self) -> bool:
        """The computable part alone is above the largest possible value, or the condition on N fails."""
        return self.known >= self.largest or self.precondition is False


def lspe_bound(
    *,
    discount: float,
    iterations: int,
    dim: int,
    count: int,
    radius: float,
    epsilon: float,
    kappa: float | None = None,
    density_ratio: float | None = None,
    delta: float = 0.05,
    reward_bound: float = 1.0,
    feature_bound: float = 1.0,
) -> Bound:
    """Theorem 1: with probability 1 - delta the error of LSPE's value is below `total`, whatever the starts.

    Args:
        discount: in [0, 1).
        iterations: K.
        dim: d.
        count: N, independent transitions.
        radius: W of the ball that the weights are constrained to.
        epsilon: eps_nu, in the reward's unit.
        kappa: relative condition number of the start distribution.
        density_ratio: sup of d^pi / nu; not needed when epsilon is 0.
        delta: in (0, 0.1).
        reward_bound: sup |r|.
        feature_bound: sup ||phi||.
    """
    _check(discount, delta, 0.1, count)
    scaled_radius = radius * feature_bound / reward_bound
    return Bound(
        terms={
            "iteration": reward_bound * discount ** (iterations / 2) / (1.0 - discount),
            "completeness": _completeness(discount, epsilon, density_ratio),
            "sampling": None
            if kappa is None
            else reward_bound
            * 480.0
            * math.sqrt(kappa)
            * _statistical(discount, dim, count, scaled_radius, delta),
        },
        largest=reward_bound / (1.0 - discount),
    )


def representation_bound(
    *,
    discount: float,
    dim: int,
    count: int,
    radius: float,
    coverage: float,
    log_features: float,
    log_predictors: float | None,
    delta: float = 0.05,
) -> Bound:
    """Theorem 2: with probability 1 - delta the features are `total`-approximately linear Bellman complete.

    Args:
        discount: in [0, 1).
        dim: d.
        count: N, transitions for learning.
        radius: W.
        coverage: beta, lambda_min of the second moment of the complete representation.
        log_features: log |Phi|.
        log_predictors: log |G|; None for deterministic transitions, which need no G.
        delta: in (0, 1).
    """
    _check(discount, delta, 1.0, count)
    if coverage <= 0.0:
        raise BadInput(
            f"coverage is {coverage}; expected lambda_min above 0: the theorem has no answer otherwise."
        )
    c2 = (96.0 * math.sqrt(log_features) + 4.0 * math.sqrt(dim) + 4.0 * math.sqrt(math.log(1.0 / delta))) / (
        coverage / 4.0
    )
    fit = math.sqrt(math.log(4.0 * radius * count / delta) + log_features)
    predict = 0.0 if log_predictors is None else math.sqrt(math.log(2.0 / delta) + log_predictors)
    return Bound(
        terms={
            "features": 13.0 * dim * (1.0 + radius) ** 2 * fit / math.sqrt(count),
            "predictors": 7.0 * discount * (1.0 + radius) * predict / math.sqrt(count),
        },
        # No backup of a function in the ball is further than this from 0, which is itself in the span.
        largest=1.0 + discount * radius,
        precondition=count >= c2**2,
        required=c2**2,
    )


def end_to_end_bound(
    *,
    discount: float,
    iterations: int,
    dim: int,
    count: int,
    radius: float,
    coverage: float,
    log_features: float,
    log_predictors: float | None,
    density_ratio: float | None = None,
    delta: float = 0.05,
) -> Bound:
    """Theorem 3: with probability 1 - 2 delta, the error of LSPE on learned features, N transitions for each.

    Arguments are those of `representation_bound` and `lspe_bound`, with |r| <= 1 and ||phi|| <= 1; delta in
    (0, 1/2).
    """
    _check(discount, delta, 0.5, count)
    learned = representation_bound(
        discount=discount,
        dim=dim,
        count=count,
        radius=radius,
        coverage=coverage,
        log_features=log_features,
        log_predictors=log_predictors,
        delta=delta,
    )
    return Bound(
        terms={
            "iteration": discount ** (iterations / 2) / (1.0 - discount),
            "completeness": _completeness(discount, learned.known, density_ratio),
            "sampling": 960.0 / math.sqrt(coverage) * _statistical(discount, dim, count, radius, delta),
        },
        largest=1.0 / (1.0 - discount),
        precondition=learned.precondition,
        required=learned.required,
    )


def _completeness(discount: float, epsilon: float, density_ratio: float | None) -> float | None:
    if epsilon == 0.0:
        return 0.0
    return None if density_ratio is None else 4.0 * math.sqrt(density_ratio) * epsilon / (1.0 - discount) ** 2


def _statistical(discount: float, dim: int, count: int, radius: float, delta: float) -> float:
    rate = dim * math.log(count) * math.sqrt(math.log(10.0 / delta)) / math.sqrt(count)
    return (1.0 + radius) * rate / (1.0 - discount) ** 2


def _check(discount: float, delta: float, largest_delta: float, count: int) -> None:
    if not 0.0 <= discount < 1.0:
        raise BadInput(f"discount is {discount}; the theorems need 0 <= discount < 1.")
    if not 0.0 < delta < largest_delta:
        raise BadInput(f"delta is {delta}; the theorem needs 0 < delta < {largest_delta}.")
    if count < 2:
        raise BadInput(f"count is {count}; expected at least 2 transitions.")


def backup_weights(rho: FloatArray, m: FloatArray, w1: FloatArray) -> FloatArray:
    """w2 = rho + M^T w1: the backup of w1^T phi when M phi = discount E[phi'] and rho^T phi = r."""
    return np.asarray(rho + m.T @ w1)


def radius_from_map(rho: FloatArray, m: FloatArray) -> float:
    """(rho, M) => completeness: the smallest W with w2 in the ball for every w1 in it, by ||M|| < 1."""
    norm = float(np.linalg.norm(m, 2))
    if norm >= 1.0:
        raise BadInput(f"||M||_2 is {norm:.4g}; the proposition needs it below 1.")
    return float(np.linalg.norm(rho)) / (1.0 - norm)


def largest_map_norm(rho: FloatArray, radius: float) -> float:
    """The proposition's completeness => (rho, M): ||M||_2 is at most sqrt(1 - ||rho||^2 / W^2)."""
    return math.sqrt(max(1.0 - float(rho @ rho) / radius**2, 0.0))


def map_from_backups(backups: FloatArray, radius: float) -> tuple[FloatArray, FloatArray]:
    """(rho, M) read off a complete representation's backups, as in the proposition's proof.

    Args:
        backups: row 0 is the backup w2 of w1 = 0, row i the backup of w1 = radius e_i; shape (d + 1, d).
        radius: W.
    """
    rho = backups[0]
    return rho, np.asarray((backups[1:] - rho) / radius)
