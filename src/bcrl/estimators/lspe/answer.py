"""From fits to an `Estimate`: the value, its interval, and the checks behind the verdict."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bcrl.estimate import Check, Estimate, FloatArray, Status
from bcrl.estimators.lspe.fit import LinearFit
from bcrl.estimators.lspe.value import MeanValue
from bcrl.inference import checks
from bcrl.inference.intervals import interval, start_influence, start_variance
from bcrl.question import Question

_SEVERITY = [Status.CONVERGED, Status.HORIZON, Status.BUDGET, Status.DIVERGED]


@dataclass(frozen=True, eq=False)
class Training:
    """What came of one training of the representation.

    Attributes:
        fits: answers on disjoint parts of the data, one per fold.
        extra: more numbers for `stats`, those of the self-check.
    """

    fits: list[LinearFit]
    extra: Mapping[str, float]

    @property
    def per_start(self) -> FloatArray:
        return np.asarray(np.mean([fit.start_features @ fit.solution.theta for fit in self.fits], axis=0))

    @property
    def status(self) -> Status:
        return max((fit.solution.status for fit in self.fits), key=_SEVERITY.index)

    @property
    def value(self) -> float:
        """Infinite where it diverged."""
        value = float(self.per_start.mean())
        return math.inf if self.status is Status.DIVERGED or not math.isfinite(value) else value


def combine(method: str, trainings: list[Training], question: Question) -> Estimate:
    """The estimate of one policy: the training with the median value, its error widened by the spread of all.

    Args:
        method: text form of the method.
        trainings: an odd number of them, on the same data.
        question: what was asked.
    """
    starts, num_units, discount, horizon = (
        question.starts,
        question.num_units,
        question.discount,
        question.horizon,
    )
    kept = median_training(trainings)
    fits, status, per_start = kept.fits, kept.status, kept.per_start
    value = float(per_start.mean())
    influence = np.zeros(num_units)
    for fit in fits:
        influence[fit.unit] += fit.influence / len(fits)
    data_error = float(np.linalg.norm(influence))
    if starts.unit is not None:
        influence += start_influence(per_start, starts.unit, num_units)
    luck = _training_luck([training.value for training in trainings])
    influence = np.concatenate([influence, luck])
    given = start_variance(per_start) if starts.unit is None else 0.0
    broken = kept.value == math.inf
    found = None
    if num_units > 1 and not broken:
        found = interval(
            value, influence, trainings=len(luck), independent_variance=given, level=question.level
        )
    error = None if found is None else found.standard_error
    stats = _merged(fits) | dict(kept.extra)
    stats |= {"variance_of_given_starts": given, "units": float(num_units), "data_error": data_error}
    stats |= {"training_error": float(np.linalg.norm(luck)), "trainings": float(len(luck))}
    stats["diverged_trainings"] = float(sum(training.value == math.inf for training in trainings))
    # Of all trainings: one that had to be tamed says something about the data, whichever is kept.
    stats["first_try_drift"] = max(fit.stats["first_try_drift"] for one in trainings for fit in one.fits)
    parts = tuple(fit.value_function for fit in fits)
    return Estimate(
        value=float("nan") if broken else value,
        method=method,
        discount=discount,
        horizon=horizon,
        interval=None if broken or found is None else found.interval,
        standard_error=None if broken else error,
        per_start=per_start,
        influence=None if found is None or given > 0.0 else influence,
        status=Status.DIVERGED if broken else status,
        checks=_checks(stats, status, value, error, discount, horizon),
        curves=fits[0].curves,
        stats=stats,
        value_function=parts[0] if len(parts) == 1 else MeanValue(parts),
    )


def median_training(trainings: list[Training]) -> Training:
    """The training with the median value among those that did not diverge; a diverged one if those are not most.

    Of an even number the last is left out, by its place and not by its value: the larger of two would be biased.
    """
    steady = [training for training in trainings if training.value != math.inf]
    if 2 * len(steady) <= len(trainings):
        return next(training for training in trainings if training.value == math.inf)
    odd = steady if len(steady) % 2 else steady[:-1]
    return sorted(odd, key=lambda training: training.value)[len(odd) // 2]


def _training_luck(values: list[float]) -> FloatArray:
    """Each training's part of the median's error; squares add up to its variance, pi/2 that of the mean. Zero for the diverged.

    Empty for one training, whose luck nobody can see.
    """
    found = np.asarray(values)
    known, count = np.isfinite(found), len(found)
    if count == 1:
        return np.zeros(0)
    if known.sum() < 2:
        return np.zeros(count)
    centred = np.where(known, found - found[known].mean(), 0.0)
    return np.asarray(centred * math.sqrt(math.pi / 2.0 / (known.sum() * (known.sum() - 1))))


def _merged(fits: list[LinearFit]) -> dict[str, float]:
    """Numbers of several fits as one: the worst of those that doubt, the mean of the rest."""
    worst_high = {
        "spectral_radius",
        "operator_norm",
        "operator_norm_bound",
        "condition_number",
        "eps_rel",
        "eps_nu",
    }
    worst_low = {"lambda_min", "effective_share", "action_support", "audit_rows"}
    merged = {}
    for name in fits[0].stats:
        values = [fit.stats[name] for fit in fits]
        merged[name] = (
            max(values)
            if name in worst_high
            else min(values)
            if name in worst_low
            else float(np.mean(values))
        )
    return merged


def _checks(
    stats: Mapping[str, float],
    status: Status,
    value: float,
    error: float | None,
    discount: float,
    horizon: int | None,
) -> tuple[Check, ...]:
    audit = checks.bellman_error(_bias_bound(stats, discount, horizon), value, stats["audit_rows"])
    bellman = 0.0 if audit.value is None or math.isnan(stats["predictable_td_error"]) else audit.value
    found = [
        checks.settled(status, int(stats["iterations"])),
        checks.reward_fit(stats["reward_residual_share"], bellman),
        checks.effective_share(stats["effective_share"], stats["effective_units"]),
        checks.precision(error, value),
        checks.enough_units(int(stats["units"])),
    ]
    if min(stats["trainings"], stats["diverged_trainings"]) > 0:
        found.append(checks.trainings(int(stats["diverged_trainings"]), int(stats["trainings"])))
    if horizon is None:
        found.insert(0, checks.contraction(stats["spectral_radius"], discount))
    if not math.isnan(stats["action_support"]):
        found.append(checks.action_support(stats["action_support"]))
        found.append(audit)
    learned_for_target = not math.isnan(stats["training_drift"])
    if learned_for_target:
        found.append(checks.stable_training(stats["training_drift"], stats["first_try_drift"]))
    if "self_check_gap" in stats:
        gap, luck, scale = (stats[f"self_check_{name}"] for name in ("gap", "error", "scale"))
        found.append(checks.self_check(gap, luck, scale, learned_for_target=learned_for_target))
    if stats["data_error"] > 1e-4 * abs(value) and math.isfinite(stats["bootstrap_error"]):
        found.append(checks.bootstrap_agrees(stats["bootstrap_error"] / stats["data_error"]))
    return tuple(found)


def _bias_bound(stats: Mapping[str, float], discount: float, horizon: int | None) -> float:
    """What the predictable part of the TD errors may add up to along the policy's way, by Cauchy and Schwarz.

    value error = steps * E_nu[w e] <= steps * sqrt(E w^2) * sqrt(E e^2), with mean weight 1 and E w^2 = 1 / effective share.
    """
    steps = (
        1.0 / (1.0 - discount) if horizon is None else min(horizon, 1.0 / max(1.0 - discount, 1.0 / horizon))
    )
    return steps * stats["predictable_td_error"] / math.sqrt(max(stats["effective_share"], 1e-12))
