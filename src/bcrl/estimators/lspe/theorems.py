"""The paper's theorems about one estimate, once episodes of the target policy are at hand.

The bounds need what no log holds: kappa(p0) and d^pi / nu are about where the policy goes. The features' W,
bounds R of rewards and F of features, and coverage are measured; Theta and Phi are not the user's to know, so

    W        the radius that eps_nu was computed for (the ball's, else the length of theta)
    beta     lambda_min of the learned features' covariance, in place of the complete ones'
    log|Phi| 32 log 2 for each weight of the network, all that float32 can tell apart; 0 for given features
    |G|      left out, as for deterministic transitions

Where features were learned on the same rows (`split="none"`) Theorems 1 and 3 hold for other rows than these.
"""

import math
from typing import Any

import numpy as np

from bcrl.data.dataset import Dataset
from bcrl.errors import BadInput
from bcrl.estimate import Estimate, FloatArray, Theorem, Theory
from bcrl.estimators.lspe.value import LinearValue
from bcrl.linear import Bound, Moments, end_to_end_bound, kappa, lspe_bound, representation_bound
from bcrl.linear.coverage import occupancy_weights
from bcrl.question import Target
from bcrl.representations.features import Encoded, FittedFeatures

_MOST_STATES = 512  # distinct observations that still are a table


def has_theory(estimate: Estimate) -> bool:
    """Whether the estimate is linear in features: the theorems are about LSPE."""
    return isinstance(estimate.value_function, LinearValue) and math.isfinite(estimate.value)


def theory_of(estimate: Estimate, target: Target, rollouts: Dataset) -> Theory:
    """kappa(p0), the density ratio where there is a table, and the right-hand sides of the three theorems."""
    function, data, discount = estimate.value_function, target.dataset, estimate.discount
    assert isinstance(function, LinearValue)
    if estimate.horizon is not None:
        raise BadInput("rollouts= goes with the whole future: the theorems know no horizon. Leave one out.")
    check_alike(data, rollouts)
    encoded, moments, longest = Encoded.of(data, function.fitted), Moments.zeros(function.fitted.dim), 0.0
    for part, phi, next_phi in encoded.chunks(np.arange(len(data)), target.actions):
        moments += Moments.from_features(phi, next_phi, data.rewards[part], data.terminated[part])
        longest = max(longest, float(np.linalg.norm(phi, axis=1).max()))
    phi = Encoded.of(rollouts, function.fitted).logged(np.arange(len(rollouts)))
    longest = max(longest, float(np.linalg.norm(phi, axis=1).max()))
    time = np.arange(len(rollouts)) - rollouts.offsets[:-1][rollouts.episode_of]
    weights = occupancy_weights(time, rollouts.terminated, discount)
    covered = kappa(moments, (phi * weights[:, None]).T @ phi)
    ratio = density_ratio(data, rollouts, weights)
    rewards = max(float(np.abs(data.rewards).max()), float(np.abs(rollouts.rewards).max()), 1e-300)
    theorems = _theorems(estimate, function, len(data), rewards, longest, covered.kappa, ratio)
    return Theory(rollouts.num_episodes, covered.kappa, covered.mean_leverage, ratio, theorems)


def check_alike(data: Dataset, rollouts: Dataset) -> None:
    """Refuse rollouts whose observations or actions are not the log's."""
    kinds = [
        ({key: value.shape[1:] for key, value in one.observations.items()}, one.action_dim)
        for one in (data, rollouts)
    ]
    if kinds[0] != kinds[1]:
        raise BadInput(
            f"The rollouts have observations and actions {kinds[1]}, the log {kinds[0]}; log the policy's "
            "episodes with the same sensors."
        )


def density_ratio(data: Dataset, rollouts: Dataset, weights: FloatArray) -> float | None:
    """Largest d^pi(s, a) / nu(s, a) that was seen, both counted; None where states are no table."""
    if data.num_actions is None or data.pixel_keys:
        return None
    tables = [
        np.concatenate([np.asarray(v[one.rows], dtype=np.float64).reshape(len(one), -1) for v in
                        one.observations.values()], axis=1)
        for one in (data, rollouts)
    ]  # fmt: skip
    states, codes = np.unique(np.concatenate(tables), axis=0, return_inverse=True)
    if len(states) > _MOST_STATES:
        return None
    pairs = codes.reshape(-1) * data.num_actions + np.concatenate([data.actions, rollouts.actions]).reshape(
        -1
    )
    size = len(states) * data.num_actions
    nu = np.bincount(pairs[: len(data)], minlength=size) / len(data)
    visits = np.bincount(pairs[len(data) :], weights=weights, minlength=size)
    seen = visits > 0.0
    return math.inf if bool((nu[seen] == 0.0).any()) else float((visits[seen] / nu[seen]).max())


def _theorems(
    estimate: Estimate,
    function: LinearValue,
    count: int,
    rewards: float,
    longest: float,
    kappa_p0: float,
    ratio: float | None,
) -> tuple[Theorem, ...]:
    stats, discount = estimate.stats, estimate.discount
    radius, epsilon = stats["eps_nu_radius"], stats["eps_nu_high"]
    shared: dict[str, Any] = {
        "discount": discount,
        "iterations": max(int(stats["iterations"]), 1),
        "dim": function.fitted.dim,
        "count": count,
        "density_ratio": ratio,
    }
    first = lspe_bound(
        **shared,
        radius=radius,
        epsilon=epsilon if math.isfinite(epsilon) else math.inf,
        kappa=kappa_p0,
        reward_bound=rewards,
        feature_bound=longest,
    )
    found = [_theorem("Theorem 1 (LSPE)", first, 1.0)]
    # In units of R and F, as Theorems 2 and 3 are stated.
    coverage = stats["lambda_min"] / longest**2
    scaled: dict[str, Any] = {"radius": radius * longest / rewards, "coverage": coverage}
    if coverage <= 0.0:
        left: dict[str, float | None] = {"coverage": None}
        return (*found, *(Theorem(f"Theorem {n}", left, 0.0, True) for n in (2, 3)))
    rich: dict[str, Any] = {"log_features": _log_features(function), "log_predictors": None}
    end = end_to_end_bound(**shared, **scaled, **rich)
    shared.pop("iterations"), shared.pop("density_ratio")
    second = representation_bound(**shared, **scaled, **rich)
    return (
        *found,
        _theorem("Theorem 2 (eps of the learned features)", second, rewards),
        _theorem("Theorem 3 (end to end)", end, rewards),
    )


def _log_features(function: LinearValue) -> float:
    """log |Phi|."""
    if not isinstance(function.fitted, FittedFeatures):
        return 0.0
    return 32.0 * math.log(2.0) * sum(weight.numel() for weight in function.fitted.net.parameters())


def _theorem(name: str, bound: Bound, unit: float) -> Theorem:
    terms = {term: None if size is None else size * unit for term, size in bound.terms.items()}
    return Theorem(name, terms, bound.largest * unit, bound.vacuous)
