"""What a linear fit tells about itself: numbers for the checks, series for the plots, and the self-check."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Dataset
from bcrl.estimate import FloatArray
from bcrl.inference.logged import discounted_returns
from bcrl.inference.support import Audit, action_support, predictable_error, states_of
from bcrl.linear import LSPESolution, Moments, Spectrum, bellman_residual, epsilon_nu, leverage, lspe
from bcrl.linear.lspe import Solver
from bcrl.policies.policy import TargetActions
from bcrl.question import Question
from bcrl.representations.features import Encoded
from bcrl.representations.fitted import FIRST_TRY, drift

_SAMPLE = 2000
_ROWS_PER_FEATURE = 20
# Weights beyond this come from a diverged iteration.
_HUGE = 1e100


@dataclass(frozen=True)
class Solving:
    """How each regression is solved; see `LSPE`."""

    solver: Solver
    ridge: float
    radius: float | None


def stats_of(
    question: Question,
    solving: Solving,
    encoded: Encoded,
    target: TargetActions,
    moments: Moments,
    spectra: Spectrum,
    solution: LSPESolution,
    x0: FloatArray,
    weights: FloatArray,
    td_errors: FloatArray,
) -> dict[str, float]:
    residual = bellman_residual(moments, question.discount, ridge=solving.ridge)
    # The smallest ball that holds the answer stands in for the paper's W, which nobody knows.
    ball = float(np.linalg.norm(solution.theta))
    completeness = epsilon_nu(residual, ball) if 0.0 < ball < _HUGE else None
    dataset = encoded.dataset
    by_unit = np.bincount(dataset.units[dataset.episode_of], weights=weights)
    states = states_of(dataset, encoded.z)
    support, audit = float("nan"), Audit(float("nan"), 0.0)
    if states.shape[1] and len(dataset) > 20:
        support = action_support(states, dataset, target, weights, seed=question.seed)
        inputs = np.concatenate([states[dataset.rows], dataset.action_matrix(dataset.actions)], axis=1)
        audit = predictable_error(inputs, td_errors, dataset, seed=question.seed)
    return {
        "spectral_radius": spectra.spectral_radius,
        "operator_norm": spectra.operator_norm,
        "operator_norm_bound": spectra.operator_norm_bound,
        "lambda_min": spectra.lambda_min,
        "condition_number": spectra.condition_number,
        "eps_rel": residual.relative,
        "eps_nu": float("nan") if completeness is None else completeness.value,
        "eps_nu_radius": ball,
        "start_leverage": float(leverage(x0[None], solution.whitening)[0]) / moments.dim,
        "reward_residual_share": residual.reward_share,
        "lstd_value": float("nan") if solution.lstd is None else float(x0 @ solution.lstd),
        "truncated_directions": float(solution.whitening.truncated),
        "features": float(moments.dim),
        "iterations": float(solution.iterations),
        "effective_share": float(weights.sum() ** 2 / (len(weights) * np.sum(weights**2))),
        "effective_units": float(by_unit.sum() ** 2 / np.sum(by_unit**2)),
        "action_support": support,
        "training_drift": drift(encoded.fitted.metrics.get("value", ())),
        "first_try_drift": drift(left) if (left := encoded.fitted.metrics.get(FIRST_TRY)) else 0.0,
        "td_error": float(np.sqrt(np.mean(td_errors**2))),
        "predictable_td_error": audit.error,
        "audit_rows": audit.rows,
    }


def curves_of(
    encoded: Encoded, target: TargetActions, spectra: Spectrum, solution: LSPESolution
) -> dict[str, list[float]]:
    dataset = encoded.dataset
    assert solution.curve is not None
    rows = np.linspace(0, len(dataset) - 1, min(len(dataset), _SAMPLE)).astype(np.int64)
    policy_features = encoded.policy(dataset.rows[rows] + 1, target)
    steps = rows - dataset.offsets[:-1][dataset.episode_of[rows]]
    counts = np.bincount(steps)
    values = np.bincount(steps, weights=encoded.policy(dataset.rows[rows], target) @ solution.theta)
    mean_value = values[counts > 0] / counts[counts > 0]
    return {
        "lspe": thin(solution.curve),
        "singular_values": spectra.singular_values.tolist(),
        "leverage_data": leverage(encoded.logged(rows), solution.whitening).tolist(),
        "leverage_policy": leverage(policy_features, solution.whitening).tolist(),
        "value_over_time": thin(mean_value),
        **{f"train/{name}": thin(np.asarray(series)) for name, series in encoded.fitted.metrics.items()},
    }


def thin(series: FloatArray, points: int = 200) -> list[float]:
    """At most `points` of a series, the first and the last among them."""
    keep = np.unique(np.linspace(0, len(series) - 1, min(len(series), points)).astype(np.int64))
    return [float(value) for value in series[keep]] if len(series) else []


def self_check(encoded: Encoded, question: Question, ridge: float) -> dict[str, float]:
    """The logging policy by the same features, against its logged returns; empty where order or next actions lack.

    Where a log says which policy made each episode, each is asked on its own episodes and the worst answer counts: what
    several policies earn together is the value of no policy that looks at the state alone.
    """
    dataset = encoded.dataset
    if not dataset.ordered or len(dataset) <= dataset.num_episodes:
        return {}
    found = []
    for episodes in _by_maker(dataset, _ROWS_PER_FEATURE * encoded.fitted.dim):
        pair = _logged_values(encoded, episodes, question.discount, question.horizon, ridge)
        if pair is None or len(pair[1]) < 2:
            continue
        values, returns = pair
        gap, scale = values - returns, float(max(abs(returns.mean()), returns.std()))
        found.append((float(gap.mean()), float(np.std(gap, ddof=1) / np.sqrt(len(gap))), scale))
    if not found:
        return {}
    worst = max(found, key=lambda one: (abs(one[0]) - 2.0 * one[1]) / max(one[2], 1e-300))
    return dict(zip(("self_check_gap", "self_check_error", "self_check_scale"), worst, strict=True))


def _by_maker(dataset: Dataset, rows: int) -> list[NDArray[np.int64]]:
    """Episodes of each logging policy that made so many rows, or else of all; with fewer, features can say anything."""
    if dataset.behaviour is not None:
        maker = np.unique(dataset.behaviour, return_inverse=True)[1]
        large = np.flatnonzero(np.bincount(maker, weights=dataset.lengths) >= rows)
        if len(large):
            return [np.flatnonzero(maker == one) for one in large]
    return [np.arange(dataset.num_episodes)]


def _logged_values(
    encoded: Encoded, episodes: NDArray[np.int64], discount: float, horizon: int | None, ridge: float
) -> tuple[FloatArray, FloatArray] | None:
    """Value at the start of these episodes of the policy that made them, and their returns; None where there is no value.

    A record that was cut off is closed with the estimate's own value of its last logged decision, so that the comparison
    is fair whatever the episodes' length. With a horizon, only episodes that were seen to it (or to their end) count.
    """
    dataset = encoded.dataset
    ends, begins = dataset.offsets[1:][episodes] - 1, dataset.offsets[:-1][episodes]
    usable = np.isin(dataset.episode_of, episodes)
    usable[ends] = dataset.terminated[ends]  # the next action of an open end is not in the log
    if not usable.any():
        return None
    moments = encoded.behaviour_moments(np.flatnonzero(usable))
    closed = dataset.terminated[ends]
    if horizon is None:
        theta = lspe(moments, discount, iterations=1, ridge=ridge).lstd
        if theta is None:
            return None
        closing = np.where(closed, 0.0, encoded.logged(ends) @ theta - dataset.rewards[ends])
        rest = np.power(discount, dataset.lengths[episodes] - 1.0) * closing
        return encoded.logged(begins) @ theta, discounted_returns(dataset, discount)[episodes] + rest
    theta = lspe(moments, discount, horizon=horizon, ridge=ridge).theta
    seen = closed | (dataset.lengths[episodes] >= horizon)
    returns = discounted_returns(dataset, discount, horizon)[episodes]
    return encoded.logged(begins[seen]) @ theta, returns[seen]
