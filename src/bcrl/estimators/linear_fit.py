"""One policy evaluated on one part of the data with one representation: weights, their spread, and what to doubt.

A first pass sums moments in blocks of independent units, LSPE solves, and a second pass gives every unit's part of the
error (linear/intervals.py), from which come the interval of V at any state and the weight w_i = x0^T (Sigma - discount C)^{-1}
phi_i of each transition: how often the linear model expects the policy there, up to a factor.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcrl.data.starts import Starts
from bcrl.estimate import FloatArray
from bcrl.estimators.encoded import Encoded
from bcrl.estimators.linear_value import LinearValue
from bcrl.estimators.support import action_support, predictable_error, states_of
from bcrl.linear import (
    LSPESolution,
    Moments,
    bellman_residual,
    block_of,
    bootstrap,
    cluster_scores,
    correct,
    horizon_influence,
    leverage,
    lspe,
    sandwich,
    spectrum,
)
from bcrl.linear.lspe import Solver
from bcrl.logged import discounted_returns
from bcrl.policy import AnyPolicy, TargetActions
from bcrl.representations.features import expected_features

_SAMPLE = 2000
_DRAWS = 100


@dataclass(frozen=True)
class Question:
    """What is asked of a fit, and how its regressions are solved."""

    discount: float
    horizon: int | None
    seed: int
    solver: Solver
    ridge: float
    radius: float | None


@dataclass(frozen=True, eq=False)
class LinearFit:
    """The answer on one part of the data.

    Attributes:
        solution: LSPE's iterates.
        start_features: phi(s0, pi), shape (n0, d).
        influence: contribution of each unit of the part to the error of the value, start states held fixed, shape (units,).
        unit: number of each such unit in the whole dataset, shape (units,).
        value_function: V(s) anywhere.
        stats: numbers for the checks.
        curves: series for the plots.
    """

    solution: LSPESolution
    start_features: FloatArray
    influence: FloatArray
    unit: NDArray[np.int64]
    value_function: LinearValue
    stats: Mapping[str, float]
    curves: Mapping[str, list[float]]


def fit_policy(
    question: Question,
    encoded: Encoded,
    target: TargetActions,
    policy: AnyPolicy,
    starts: Starts,
    begin: TargetActions,
) -> LinearFit:
    """Evaluate one policy.

    Args:
        question: discount, horizon, seed, solver.
        encoded: the data to evaluate on, through the representation.
        target: the policy's actions at every observation row of that data.
        policy: the policy itself, for V anywhere.
        starts: start states.
        begin: the policy's actions there.
    """
    fitted, dataset = encoded.fitted, encoded.dataset
    labels, unit = np.unique(dataset.units, return_inverse=True)
    block = block_of(len(labels))[unit][dataset.episode_of]
    blocks = [encoded.moments(np.flatnonzero(block == b), target) for b in range(int(block.max()) + 1)]
    moments = sum(blocks[1:], start=blocks[0])
    start_features = expected_features(fitted, fitted.encode(dict(starts.observations)), begin)
    x0 = start_features.mean(axis=0)
    solution = lspe(
        moments,
        question.discount,
        start_features=x0,
        horizon=question.horizon,
        solver=question.solver,
        ridge=question.ridge,
        radius=question.radius,
    )
    rows, influence, weights, td_errors = _errors(question, encoded, target, solution, x0, unit, len(labels))
    return LinearFit(
        solution=solution,
        start_features=start_features,
        influence=influence,
        unit=labels,
        value_function=LinearValue(
            fitted,
            solution.theta,
            None if rows is None else _root(rows),
            dataset.template(),
            policy,
            question.seed,
        ),
        stats=_stats(question, encoded, target, moments, solution, x0, weights, td_errors)
        | {"bootstrap_error": _bootstrap_error(question, blocks, x0)},
        curves=_curves(encoded, target, moments, solution),
    )


def _errors(
    question: Question,
    encoded: Encoded,
    target: TargetActions,
    solution: LSPESolution,
    x0: FloatArray,
    unit: NDArray[np.int64],
    units: int,
) -> tuple[FloatArray | None, FloatArray, FloatArray, FloatArray]:
    """Each unit's part of theta's error (units, d) and of the value's (units,); each transition's weight and TD error (N,).

    A finite horizon has no single theta to give an error to: its first entry is None.
    """
    dataset, count, dim = encoded.dataset, len(encoded.dataset), encoded.fitted.dim
    finite = None
    if question.horizon is not None and question.solver != "ball":
        finite = horizon_influence(solution, x0, discount=question.discount, count=count)
    dual = _dual(solution, x0) if finite is None else finite.reward
    scores, value_part = np.zeros((units, dim)), np.zeros(units)
    weights, td_errors = np.empty(count), np.empty(count)
    for part, phi, next_phi in encoded.chunks(np.arange(count), target):
        batch = (phi, next_phi, dataset.rewards[part], dataset.terminated[part])
        cluster = unit[dataset.episode_of[part]]
        weights[part] = phi @ dual
        ahead = np.where(batch[3], 0.0, next_phi @ solution.previous)
        td_errors[part] = batch[2] + question.discount * ahead - phi @ solution.theta
        if finite is None:
            scores += cluster_scores(
                *batch, cluster, theta=solution.theta, discount=question.discount, num_clusters=units
            )
        else:
            value_part += np.bincount(cluster, weights=finite.per_transition(*batch), minlength=units)
    if units < 2:
        return None, np.zeros(units), weights, td_errors
    if finite is not None:
        return None, correct(value_part, count=count, dim=dim), weights, td_errors
    rows = sandwich(solution, scores, count).rows
    return rows, rows @ x0, weights, td_errors


def _dual(solution: LSPESolution, x0: FloatArray) -> FloatArray:
    """u = (Sigma - discount C)^{-T} x0, shape (d,)."""
    matrix = solution.whitening.matrix
    system = np.eye(matrix.shape[1]) - solution.operator
    return np.asarray(matrix @ np.linalg.lstsq(system.T, matrix.T @ x0, rcond=None)[0])


def _root(rows: FloatArray) -> FloatArray:
    """E with E E^T = rows^T rows, the covariance of theta; at most d columns."""
    units, dim = rows.shape
    if units <= dim:
        return np.ascontiguousarray(rows.T)
    eigenvalues, vectors = np.linalg.eigh(rows.T @ rows)
    return np.asarray(vectors * np.sqrt(np.maximum(eigenvalues, 0.0)))


def _bootstrap_error(question: Question, blocks: list[Moments], x0: FloatArray) -> float:
    """Standard error of x0^T theta by the block bootstrap, the start states held fixed; nan where it cannot be had."""
    if len(blocks) < 4 or question.solver != "cholesky":
        return float("nan")
    found = bootstrap(
        blocks,
        discount=question.discount,
        generator=np.random.default_rng([question.seed, 0xB0]),
        start_features=x0[None],
        horizon=question.horizon,
        draws=_DRAWS,
        ridge=question.ridge,
    )
    return found.standard_error


def _stats(
    question: Question,
    encoded: Encoded,
    target: TargetActions,
    moments: Moments,
    solution: LSPESolution,
    x0: FloatArray,
    weights: FloatArray,
    td_errors: FloatArray,
) -> dict[str, float]:
    spectra = spectrum(moments, question.discount, ridge=question.ridge)
    residual = bellman_residual(moments, question.discount, ridge=question.ridge)
    dataset = encoded.dataset
    by_unit = np.bincount(dataset.units[dataset.episode_of], weights=weights)
    states = states_of(dataset, encoded.z)
    support = audit = float("nan")
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
        "reward_residual_share": residual.reward_share,
        "lstd_value": float("nan") if solution.lstd is None else float(x0 @ solution.lstd),
        "truncated_directions": float(solution.whitening.truncated),
        "features": float(moments.dim),
        "iterations": float(solution.iterations),
        "effective_share": float(weights.sum() ** 2 / (len(weights) * np.sum(weights**2))),
        "effective_units": float(by_unit.sum() ** 2 / np.sum(by_unit**2)),
        "action_support": support,
        "td_error": float(np.sqrt(np.mean(td_errors**2))),
        "predictable_td_error": audit,
    }


def _curves(
    encoded: Encoded, target: TargetActions, moments: Moments, solution: LSPESolution
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
        "singular_values": np.linalg.svd(moments.mean.sigma, compute_uv=False).tolist(),
        "leverage_data": leverage(encoded.logged(rows), solution.whitening).tolist(),
        "leverage_policy": leverage(policy_features, solution.whitening).tolist(),
        "value_over_time": thin(mean_value),
        **{f"train/{name}": thin(np.asarray(series)) for name, series in encoded.fitted.metrics.items()},
    }


def thin(series: FloatArray, points: int = 200) -> list[float]:
    """At most `points` of a series, the first and the last among them."""
    keep = np.unique(np.linspace(0, len(series) - 1, min(len(series), points)).astype(np.int64))
    return [float(value) for value in series[keep]] if len(series) else []


def self_check(encoded: Encoded, discount: float, horizon: int | None, ridge: float) -> dict[str, float]:
    """The logging policy by the same features, against its logged returns; empty where order or next actions lack.

    A record that was cut off is closed with the estimate's own value of its last logged decision, so that the comparison
    is fair whatever the episodes' length. With a horizon, only episodes that were seen to it (or to their end) count.
    """
    dataset = encoded.dataset
    if not dataset.ordered or len(dataset) <= dataset.num_episodes:
        return {}
    ends, begins = dataset.offsets[1:] - 1, dataset.offsets[:-1]
    last = np.zeros(len(dataset), dtype=bool)
    last[ends] = True
    moments = encoded.behaviour_moments(np.flatnonzero(~last | dataset.terminated))
    closed = dataset.terminated[ends]
    if horizon is None:
        theta = lspe(moments, discount, iterations=1, ridge=ridge).lstd
        if theta is None:
            return {}
        closing = np.where(closed, 0.0, encoded.logged(ends) @ theta - dataset.rewards[ends])
        returns = discounted_returns(dataset, discount) + np.power(discount, dataset.lengths - 1.0) * closing
        seen = np.arange(dataset.num_episodes)
    else:
        theta = lspe(moments, discount, horizon=horizon, ridge=ridge).theta
        returns = discounted_returns(dataset, discount, horizon)
        seen = np.flatnonzero(closed | (dataset.lengths >= horizon))
    if len(seen) < 2:
        return {}
    gap = encoded.logged(begins[seen]) @ theta - returns[seen]
    return {
        "self_check_gap": float(gap.mean()),
        "self_check_error": float(np.std(gap, ddof=1) / np.sqrt(len(gap))),
        "self_check_scale": float(max(abs(returns[seen].mean()), returns[seen].std())),
    }
