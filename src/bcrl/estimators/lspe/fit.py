"""One policy evaluated on one part of the data with one representation: V, its errors, reasons to doubt it.

The data are passed over twice. The first pass sums moments in blocks of independent units, and LSPE solves.
The second gives every unit's part of the error (linear/sandwich.py), from which come the interval of V at any
state and the weight w_i = x0^T (Sigma - discount C)^{-1} phi_i of each transition: how often the linear model
expects the policy there, up to a factor.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial

import numpy as np
from numpy.typing import NDArray

from bcrl import salts
from bcrl.data.dataset import Dataset
from bcrl.estimate import FloatArray, Status
from bcrl.estimators.lspe.shards import Found, moments_of_blocks, second_pass
from bcrl.estimators.lspe.value import LinearValue
from bcrl.inference.evidence import Audit, action_support, predictable_error
from bcrl.inference.inputs import states_at, with_actions
from bcrl.inference.intervals import block_of, bootstrap, bootstrap_error
from bcrl.linear import (
    LSPESolution,
    Moments,
    Spectrum,
    bellman_residual,
    epsilon_nu,
    leverage,
    spectrum,
    td_errors,
)
from bcrl.linear.fallback import KINDS, Fallback
from bcrl.linear.sandwich import (
    HorizonInfluence,
    cluster_scores,
    correct,
    covariance_root,
    dual_weights,
    horizon_influence,
    sandwich,
)
from bcrl.policies.policy import TargetActions
from bcrl.question import Target
from bcrl.representations.features import FIRST_TRY, Encoded, drift
from bcrl.training import Crew

_BOOTSTRAP_DRAWS = 100
_CURVE_ROWS, _CURVE_POINTS = 2000, 200
# Weights beyond this come from a diverged iteration.
_HUGE = 1e100


@dataclass(frozen=True, eq=False)
class Closer:
    """All that is said about an answer that is kept.

    Attributes:
        units: numbers that the part's independent units have in the dataset, shape (units,).
        influence: contribution of each of them to the error of the value, start states held fixed, (units,).
        value_function: V(s) anywhere.
        stats: numbers for the checks.
        curves: series for the plots.
    """

    units: NDArray[np.int64]
    influence: FloatArray
    value_function: LinearValue
    stats: Mapping[str, float]
    curves: Mapping[str, list[float]]


@dataclass(frozen=True, eq=False)
class PartAnswer:
    """The answer for one policy on one part of the data.

    Attributes:
        per_start: V at the start states, shape (n0,).
        status: how LSPE ended.
        plain: whether the plain iteration answered, no stand-in.
        first_try_drift: how far the value moved in a training that a steadier one replaced; 0: none was.
        closer: the closer look, which costs as much as a good part of a training.
    """

    per_start: FloatArray
    status: Status
    plain: bool
    first_try_drift: float
    closer: Callable[[], Closer]


@dataclass(frozen=True, eq=False)
class PolicyFit:
    """LSPE's weights for one policy, and the part of the data that they were fitted on.

    Attributes:
        target: the policy.
        encoded: the part, seen through the representation.
        actions: the policy's actions at every observation row of the part.
        start_features: phi(s0, pi), shape (n0, d).
        blocks: gives the moments of disjoint groups of independent units, together all of the part.
        solution: LSPE's iterates, or what stands in for them.
        fallback: which stand-in it is; None: the plain iteration.
        crew: shares the passes over the data; None: they are made here.
    """

    target: Target
    encoded: Encoded
    actions: TargetActions
    start_features: FloatArray
    blocks: Callable[[], list[Moments]]
    solution: LSPESolution
    fallback: Fallback | None = None
    crew: Crew | None = None

    @property
    def plain(self) -> LSPESolution:
        """The plain iteration, blown up or not."""
        return self.solution if self.fallback is None else self.fallback.first

    @cached_property
    def x0(self) -> FloatArray:
        return np.asarray(self.start_features.mean(axis=0))

    def answer(self, *, later: bool) -> PartAnswer:
        """The answer; `later`: the closer look is only taken once it is asked for."""
        left = self.encoded.fitted.metrics.get(FIRST_TRY)
        return PartAnswer(
            per_start=np.asarray(self.start_features @ self.solution.theta),
            status=self.solution.status,
            plain=self.fallback is None,
            first_try_drift=drift(left) if left else 0.0,
            closer=cache(self._closer) if later else _known(self._closer()),
        )

    def _closer(self) -> Closer:
        errors = _errors(self)
        blocks = self.blocks()
        moments = sum(blocks[1:], start=blocks[0])
        spectra = spectrum(moments, self.solution.discount, ridge=self.plain.ridge)
        stats = _spectral_stats(self, moments, spectra) | _error_stats(self, errors, blocks)
        return Closer(
            units=_units(self.encoded.dataset)[0],
            influence=errors.value,
            value_function=LinearValue(
                fitted=self.encoded.fitted,
                theta=self.solution.theta,
                error_root=None if errors.theta is None else covariance_root(errors.theta),
                template=self.encoded.dataset.template(),
                policy=self.target.policy,
                seed=self.target.seed,
            ),
            stats=stats,
            curves=_curves(self, spectra),
        )


def _known(closer: Closer) -> Callable[[], Closer]:
    return lambda: closer


def moments_by_block(
    encoded: Encoded,
    policies: Sequence[TargetActions],
    advance: Callable[[int], None] = lambda _: None,
    crew: Crew | None = None,
) -> list[list[Moments]]:
    """For each policy the moments of every block of independent units; `advance` is told of what is done."""
    dataset = encoded.dataset
    labels, unit = _units(dataset)
    of_episode = block_of(len(labels))[unit]
    if crew is not None:
        episodes = [np.flatnonzero(of_episode == one) for one in range(int(of_episode.max()) + 1)]
        return moments_of_blocks(crew, encoded, policies, episodes, advance)
    block = of_episode[dataset.episode_of]
    found: list[list[Moments]] = [[] for _ in policies]
    for number in range(int(block.max()) + 1):
        members = np.flatnonzero(block == number)
        for blocks, moments in zip(found, encoded.moments_of_all(members, policies), strict=True):
            blocks.append(moments)
        advance(len(members))
    return found


def _units(dataset: Dataset) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Labels of the independent units, and the place of each episode's among them, shape (E,)."""
    labels, place = np.unique(dataset.units, return_inverse=True)
    return labels, place


@dataclass(frozen=True, eq=False)
class _Errors:
    """What the second pass gives.

    Attributes:
        theta: contribution of each unit to theta's error, shape (units, d); None for a single unit, and for a
            finite horizon, which has no single theta to give an error to.
        value: contribution of each unit to the value's error, start states held fixed, shape (units,).
        weights: weight of each transition, shape (N,).
        td: TD error of each transition, shape (N,).
    """

    theta: FloatArray | None
    value: FloatArray
    weights: FloatArray
    td: FloatArray


@dataclass(frozen=True, eq=False)
class _SecondPass:
    """What is looked for in every transition, once theta is known.

    Attributes:
        theta, previous: of the last two iterations, shape (d,).
        dual: gives a transition's weight, shape (d,).
        discount: of the value.
        finite: how the value after a finite number of steps responds to each transition; None: no horizon.
    """

    theta: FloatArray
    previous: FloatArray
    dual: FloatArray
    discount: float
    finite: HorizonInfluence | None

    def over(self, encoded: Encoded, actions: TargetActions, unit: NDArray[np.int64], units: int) -> Found:
        """Weights and TD errors (N,), scores (units, d) and contributions to the value (units,).

        Args:
            encoded: the data.
            actions: the policy's at every observation row.
            unit: of each episode, shape (E,).
            units: how many there are.
        """
        dataset, count = encoded.dataset, len(encoded.dataset)
        scores, value = np.zeros((units, encoded.fitted.dim)), np.zeros(units)
        weights, td = np.empty(count), np.empty(count)
        for part, phi, next_phi in encoded.chunks(np.arange(count), actions):
            rewards, terminated = dataset.rewards[part], dataset.terminated[part]
            cluster, q = unit[dataset.episode_of[part]], phi @ self.theta
            first, stop = int(cluster.min()), int(cluster.max()) + 1  # few of them: episodes stand in order
            weights[part] = phi @ self.dual
            td[part] = td_errors(rewards, terminated, q, next_phi @ self.previous, self.discount)
            if self.finite is None:
                delta = td_errors(rewards, terminated, q, next_phi @ self.theta, self.discount)
                scores[first:stop] += cluster_scores(phi, delta, cluster - first, stop - first)
            else:
                parts = self.finite.per_transition(phi, next_phi, rewards, terminated)
                value += np.bincount(cluster, weights=parts, minlength=units)
        return weights, td, scores, value


def _errors(fit: PolicyFit) -> _Errors:
    """The second pass."""
    dataset, solution, discount = fit.encoded.dataset, fit.solution, fit.solution.discount
    count, (labels, unit) = len(dataset), _units(dataset)
    finite = None
    # Undiscounted, the endless system of the ball is singular; where the ball does not bind, this is exact.
    if solution.horizon is not None and (solution.solver != "ball" or discount == 1.0):
        finite = horizon_influence(solution, fit.x0, count)
    dual = dual_weights(solution, fit.x0) if finite is None else finite.reward
    second = _SecondPass(solution.theta, solution.previous, dual, discount, finite)
    over = second.over if fit.crew is None else partial(second_pass, fit.crew, second.over)
    weights, td, scores, value = over(fit.encoded, fit.actions, unit, len(labels))
    if len(labels) < 2:
        return _Errors(None, np.zeros(len(labels)), weights, td)
    if finite is not None:
        return _Errors(None, correct(value, count=count, dim=fit.encoded.fitted.dim), weights, td)
    theta = sandwich(solution, scores, count)
    return _Errors(theta, theta @ fit.x0, weights, td)


def _spectral_stats(fit: PolicyFit, moments: Moments, spectra: Spectrum) -> dict[str, float]:
    """Numbers that the moments alone give: completeness, coverage, and how LSPE ended."""
    solution, plain = fit.solution, fit.plain
    residual = bellman_residual(moments, solution.discount, ridge=plain.ridge)
    # The paper's W is the user's, or unknown: then the smallest ball that holds the answer.
    ball = solution.radius or float(np.linalg.norm(solution.theta))
    completeness = epsilon_nu(residual, ball) if 0.0 < ball < _HUGE else None
    return {
        "spectral_radius": spectra.spectral_radius,
        "operator_norm": spectra.operator_norm,
        "operator_norm_bound": spectra.operator_norm_bound,
        "lambda_min": spectra.lambda_min,
        "condition_number": spectra.condition_number,
        "eps_rel": residual.relative,
        "eps_nu_low": float("nan") if completeness is None else completeness.lower,
        "eps_nu_high": float("nan") if completeness is None else completeness.upper,
        "eps_nu_radius": ball,
        "start_leverage": float(leverage(fit.x0[None], solution.whitening)[0]) / moments.dim,
        "reward_residual_share": residual.reward_share,
        "lstd_value": float("nan") if plain.lstd is None else float(fit.x0 @ plain.lstd),
        "truncated_directions": float(solution.whitening.truncated),
        "features": float(moments.dim),
        "iterations": float(solution.iterations),
        "fallback": 0.0 if fit.fallback is None else 1.0 + KINDS.index(fit.fallback.kind),
        "fallback_size": 0.0 if fit.fallback is None else fit.fallback.size,
    }


def _error_stats(fit: PolicyFit, errors: _Errors, blocks: list[Moments]) -> dict[str, float]:
    """Numbers that the second pass gives, those of the training, and the bootstrap's."""
    encoded, seed, weights = fit.encoded, fit.target.seed, errors.weights
    dataset, metrics = encoded.dataset, encoded.fitted.metrics
    by_unit = np.bincount(dataset.units[dataset.episode_of], weights=weights)
    states = states_at(dataset, encoded.at if encoded.has_codes else None)
    support, audit = float("nan"), Audit(float("nan"), 0.0)
    if states.shape[1] and len(dataset) > 20:
        support = action_support(states, dataset, fit.actions, weights, seed=seed)
        audit = predictable_error(with_actions(states, dataset), errors.td, dataset, seed=seed)
    return {
        "effective_share": float(weights.sum() ** 2 / (len(weights) * np.sum(weights**2))),
        "effective_units": float(by_unit.sum() ** 2 / np.sum(by_unit**2)),
        "action_support": support,
        "training_drift": drift(metrics.get("value", ())),
        "td_error": float(np.sqrt(np.mean(errors.td**2))),
        "predictable_td_error": audit.error,
        "audit_rows": audit.rows,
        "bootstrap_error": _bootstrap_error(fit, blocks),
    }


def _bootstrap_error(fit: PolicyFit, blocks: list[Moments]) -> float:
    """Standard error of the value by the block bootstrap; nan for few blocks and other solvers."""
    solution = fit.solution
    other = fit.fallback is not None and fit.fallback.kind != "lstd"
    if len(blocks) < 4 or solution.solver != "cholesky" or other:
        return float("nan")
    thetas = bootstrap(
        blocks,
        solution.discount,
        np.random.default_rng([fit.target.seed, salts.BOOTSTRAP]),
        horizon=solution.horizon,
        draws=_BOOTSTRAP_DRAWS,
        ridge=solution.ridge,
    )
    return bootstrap_error(thetas, fit.x0, len(blocks))


def _curves(fit: PolicyFit, spectra: Spectrum) -> dict[str, list[float]]:
    encoded, dataset, solution = fit.encoded, fit.encoded.dataset, fit.solution
    assert solution.curve is not None
    rows = np.linspace(0, len(dataset) - 1, min(len(dataset), _CURVE_ROWS)).astype(np.int64)
    policy_features = encoded.policy(dataset.rows[rows] + 1, fit.actions)
    steps = rows - dataset.offsets[:-1][dataset.episode_of[rows]]
    counts = np.bincount(steps)
    values = np.bincount(steps, weights=encoded.policy(dataset.rows[rows], fit.actions) @ solution.theta)
    training = {f"train/{name}": np.asarray(series) for name, series in encoded.fitted.metrics.items()}
    iterates = {"lspe": _few_points(solution.curve)}
    if fit.fallback is not None:
        assert fit.plain.curve is not None
        iterates["lspe_plain"] = _few_points(fit.plain.curve)
        if fit.fallback.kind == "lstd":  # it is solved for, not iterated to
            iterates["lspe"] = [float(fit.x0 @ solution.theta)]
    return iterates | {
        "singular_values": spectra.singular_values.tolist(),
        "leverage_data": leverage(encoded.logged(rows), solution.whitening).tolist(),
        "leverage_policy": leverage(policy_features, solution.whitening).tolist(),
        "value_over_time": _few_points(values[counts > 0] / counts[counts > 0]),
        **{name: _few_points(series) for name, series in training.items()},
    }


def _few_points(series: FloatArray) -> list[float]:
    """At most `_CURVE_POINTS` of a series, the first and the last among them."""
    keep = np.unique(np.linspace(0, len(series) - 1, min(len(series), _CURVE_POINTS)).astype(np.int64))
    return [float(value) for value in series[keep]] if len(series) else []
