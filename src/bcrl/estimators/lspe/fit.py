"""One policy evaluated on one part of the data with one representation: weights, their spread, and what to doubt.

A first pass sums moments in blocks of independent units, LSPE solves, and a second pass gives every unit's part of the
error (linear/intervals.py), from which come the interval of V at any state and the weight w_i = x0^T (Sigma - discount C)^{-1}
phi_i of each transition: how often the linear model expects the policy there, up to a factor.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl import salts
from bcrl.estimate import FloatArray
from bcrl.estimators.lspe.diagnostics import Solving, curves_of, stats_of
from bcrl.estimators.lspe.value import LinearValue
from bcrl.inference.bootstrap import block_of, bootstrap
from bcrl.inference.intervals import cluster_scores, correct, horizon_influence, sandwich
from bcrl.linear import LSPESolution, Moments, lspe, spectrum
from bcrl.policies.policy import TargetActions
from bcrl.question import Question, Target
from bcrl.representations.features import Encoded, expected_features
from bcrl.training import Pace

_DRAWS = 100


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
    solving: Solving,
    encoded: Encoded,
    target: Target,
    actions: TargetActions,
    first: Any,  # noqa: ANN401 - whatever the representation encodes to
    pace: Pace,
) -> LinearFit:
    """Evaluate one policy.

    Args:
        question: what is asked.
        solving: how the regressions are solved.
        encoded: the data to evaluate on, through the representation.
        target: the policy.
        actions: its actions at every observation row of that data.
        first: start states, encoded (`encoded.starts`).
        pace: told of every transition.
    """
    fitted, dataset = encoded.fitted, encoded.dataset
    labels, unit = np.unique(dataset.units, return_inverse=True)
    block = block_of(len(labels))[unit][dataset.episode_of]
    blocks = []
    for number in range(int(block.max()) + 1):
        members = np.flatnonzero(block == number)
        blocks.append(encoded.moments(members, actions))
        pace.advance(len(members))
    moments = sum(blocks[1:], start=blocks[0])
    start_features = expected_features(fitted, first, target.start_actions)
    x0 = start_features.mean(axis=0)
    solution = lspe(
        moments,
        question.discount,
        start_features=x0,
        horizon=question.horizon,
        solver=solving.solver,
        ridge=solving.ridge,
        radius=solving.radius,
    )
    rows, influence, weights, td_errors = _errors(
        question, solving, encoded, actions, solution, x0, unit, len(labels)
    )
    spectra = spectrum(moments, question.discount, ridge=solving.ridge)
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
            target.policy,
            question.seed,
        ),
        stats=stats_of(
            question, solving, encoded, actions, moments, spectra, solution, x0, weights, td_errors
        )
        | {"bootstrap_error": _bootstrap_error(question, solving, blocks, x0)},
        curves=curves_of(encoded, actions, spectra, solution),
    )


def _errors(
    question: Question,
    solving: Solving,
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
    if question.horizon is not None and solving.solver != "ball":
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


def _bootstrap_error(question: Question, solving: Solving, blocks: list[Moments], x0: FloatArray) -> float:
    """Standard error of x0^T theta by the block bootstrap, the start states held fixed; nan where it cannot be had."""
    if len(blocks) < 4 or solving.solver != "cholesky":
        return float("nan")
    found = bootstrap(
        blocks,
        discount=question.discount,
        generator=np.random.default_rng([question.seed, salts.BOOTSTRAP]),
        start_features=x0[None],
        horizon=question.horizon,
        draws=_DRAWS,
        ridge=solving.ridge,
    )
    return found.standard_error
