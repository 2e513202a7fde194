"""From trainings to an `Estimate`: the value, its interval, and the checks behind the verdict.

One of the checks asks the same features for the value of the logging policy, whose returns are known.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Dataset
from bcrl.estimate import Check, Estimate, FloatArray, Status
from bcrl.estimators.lspe.fit import Closer, PartAnswer
from bcrl.estimators.lspe.value import MeanValue
from bcrl.inference import checks
from bcrl.inference.contrast import discounted_returns, returns_to_go
from bcrl.inference.intervals import Influence, interval, start_influence, start_variance
from bcrl.linear import lspe
from bcrl.linear.fallback import KINDS
from bcrl.question import Question
from bcrl.representations.features import Encoded

_SEVERITY = [Status.CONVERGED, Status.HORIZON, Status.LIMIT, Status.DIVERGED]
# Over several parts of the data: the worst number where it is a reason for doubt, else the mean.
_WORST = dict.fromkeys(
    (
        "spectral_radius",
        "operator_norm",
        "operator_norm_bound",
        "condition_number",
        "eps_rel",
        "eps_nu_low",
        "eps_nu_high",
        "fallback",
        "fallback_size",
    ),
    max,
) | dict.fromkeys(("lambda_min", "effective_share", "action_support", "audit_rows"), min)
# With fewer rows for each feature, the features can fit anything.
_ROWS_PER_FEATURE = 20


@dataclass(frozen=True, eq=False)
class Training:
    """The result of one training of the representation.

    Attributes:
        parts: answers on disjoint parts of the data, one per fold.
        self_check: makes the self-check's numbers for `stats`.
    """

    parts: list[PartAnswer]
    self_check: Callable[[], Mapping[str, float]]

    @property
    def per_start(self) -> FloatArray:
        return np.asarray(np.mean([part.per_start for part in self.parts], axis=0))

    @property
    def status(self) -> Status:
        return max((part.status for part in self.parts), key=_SEVERITY.index)

    @property
    def value(self) -> float:
        """Infinite where it diverged."""
        value = float(self.per_start.mean())
        return math.inf if self.status is Status.DIVERGED or not math.isfinite(value) else value

    @property
    def steady(self) -> bool:
        """Whether the plain iteration answered on every part."""
        return math.isfinite(self.value) and all(part.plain for part in self.parts)

    @property
    def closer(self) -> list[Closer]:
        """The closer look at every part; taken of the training that is kept."""
        return [part.closer() for part in self.parts]

    def influence(self, num_units: int) -> FloatArray:
        """Contribution of each unit of the dataset to the value's error, start states held fixed."""
        total = np.zeros(num_units)
        for part in self.closer:
            total[part.units] += part.influence / len(self.parts)
        return total

    def stats(self) -> dict[str, float]:
        """The numbers of all parts combined, and the self-check's."""
        parts = self.closer
        values = {name: [part.stats[name] for part in parts] for name in parts[0].stats}
        merged = {
            name: _WORST[name](each) if name in _WORST else float(np.mean(each))
            for name, each in values.items()
        }
        return merged | dict(self.self_check())


def combine(method: str, trainings: list[Training], question: Question) -> Estimate:
    """The estimate of one policy: the training with the median value, its error widened by the spread of all.

    Args:
        method: text form of the method.
        trainings: an odd number of them, on the same data.
        question: what was asked.
    """
    counted = counting(trainings)
    kept = median_training(counted)
    starts, num_units, per_start = question.starts, question.num_units, kept.per_start
    value, diverged = float(per_start.mean()), kept.value == math.inf
    units = kept.influence(num_units)
    data_error = float(np.linalg.norm(units))
    if starts.unit is not None:
        units += start_influence(per_start, starts.unit, num_units)
    given = start_variance(per_start) if starts.unit is None else 0.0
    influence = Influence(
        units, _training_errors([one.value if one in counted else math.inf for one in trainings])
    )
    error, around = None, None
    if num_units > 1 and not diverged:
        error, around = interval(value, influence, independent_variance=given, level=question.level)
    stats = kept.stats()
    stats |= {"variance_of_given_starts": given, "units": float(num_units), "data_error": data_error}
    stats["training_error"] = float(np.linalg.norm(influence.trainings))
    stats["trainings"] = float(len(influence.trainings))
    stats["diverged_trainings"] = float(sum(not training.steady for training in trainings))
    # Over all trainings: one that had to be repeated with layer norm says something about the data.
    stats["first_try_drift"] = max(part.first_try_drift for one in trainings for part in one.parts)
    functions = tuple(part.value_function for part in kept.closer)
    return Estimate(
        value=float("nan") if diverged else value,
        method=method,
        discount=question.discount,
        horizon=question.horizon,
        interval=around,
        standard_error=error,
        per_start=per_start,
        influence=None if error is None or given > 0.0 else influence.array,
        status=Status.DIVERGED if diverged else kept.status,
        checks=_checks(stats, kept.status, value, error, question),
        curves=kept.closer[0].curves,
        stats=stats,
        value_function=functions[0] if len(functions) == 1 else MeanValue(functions),
    )


def counting(trainings: list[Training]) -> list[Training]:
    """The trainings that the answer may come from: where most are steady, those; else every one with a value,
    by a stand-in too; all where most have none."""
    for kept in (
        [one for one in trainings if one.steady],
        [one for one in trainings if one.value != math.inf],
    ):
        if 2 * len(kept) > len(trainings):
            return kept
    return trainings


def median_training(counted: list[Training]) -> Training:
    """The training with the median value; a diverged one if there is one among them.

    Where their number is even the last one trained is left out: to take the larger of two would be biased.
    """
    gone = [training for training in counted if training.value == math.inf]
    if gone:
        return gone[0]
    odd = counted if len(counted) % 2 else counted[:-1]
    return sorted(odd, key=lambda training: training.value)[len(odd) // 2]


def _training_errors(values: list[float]) -> FloatArray:
    """Each training's part of the median's error, of variance pi/2 that of the mean; 0 for the diverged.

    Empty for one training, whose error cannot be seen.
    """
    ends = np.asarray(values)
    known, count = np.isfinite(ends), len(ends)
    if count == 1:
        return np.zeros(0)
    if known.sum() < 2:
        return np.zeros(count)
    centred = np.where(known, ends - ends[known].mean(), 0.0)
    return np.asarray(centred * math.sqrt(math.pi / 2.0 / (known.sum() * (known.sum() - 1))))


def _checks(
    stats: Mapping[str, float], status: Status, value: float, error: float | None, question: Question
) -> tuple[Check, ...]:
    audit = checks.bellman_error(_bias_bound(stats, question), value, stats["audit_rows"])
    bellman = 0.0 if audit.value is None or math.isnan(stats["predictable_td_error"]) else audit.value
    made = [
        checks.convergence(status, int(stats["iterations"])),
        checks.reward_fit(stats["reward_residual_share"], bellman),
        checks.effective_share(stats["effective_share"], stats["effective_units"]),
        checks.precision(error, value),
        checks.enough_units(int(stats["units"])),
    ]
    if min(stats["trainings"], stats["diverged_trainings"]) > 0:
        made.append(checks.trainings(int(stats["diverged_trainings"]), int(stats["trainings"])))
    if stats["fallback"] > 0.0:
        kind = KINDS[int(stats["fallback"]) - 1]
        made.insert(0, checks.stand_in(kind, stats["fallback_size"], stats["spectral_radius"]))
    elif question.horizon is None:
        made.insert(0, checks.contraction(stats["spectral_radius"], question.discount))
    if not math.isnan(stats["action_support"]):
        made += [checks.action_support(stats["action_support"]), audit]
    learned_for_target = not math.isnan(stats["training_drift"])
    if learned_for_target:
        made.append(checks.stable_training(stats["training_drift"], stats["first_try_drift"]))
    if "self_check_gap" in stats:
        gap, noise, scale = (stats[f"self_check_{name}"] for name in ("gap", "error", "scale"))
        made.append(checks.self_check(gap, noise, scale, learned_for_target=learned_for_target))
    if stats["data_error"] > 1e-4 * abs(value) and math.isfinite(stats["bootstrap_error"]):
        made.append(checks.bootstrap_agrees(stats["bootstrap_error"] / stats["data_error"]))
    return tuple(made)


def _bias_bound(stats: Mapping[str, float], question: Question) -> float:
    """Bound on what the predictable part of the TD errors adds up to under the policy, by Cauchy and Schwarz.

    value error = steps * E_nu[w e] <= steps * sqrt(E w^2) * sqrt(E e^2), with mean weight 1 and
    E w^2 = 1 / effective share.
    """
    left, horizon = 1.0 - question.discount, question.horizon
    steps = 1.0 / left if horizon is None else min(horizon, 1.0 / max(left, 1.0 / horizon))
    return steps * stats["predictable_td_error"] / math.sqrt(max(stats["effective_share"], 1e-12))


def self_check(encoded: Encoded, question: Question, ridge: float) -> dict[str, float]:
    """Gap between value and logged returns, its standard error, and the returns' size, by name for `stats`.

    Empty where the log has no order or no next actions. If the log says which policy made each episode, each
    policy is checked on its own episodes and the worst answer counts: the mean return of several policies is
    not the value of any policy that sees the state alone.
    """
    dataset = encoded.dataset
    if not dataset.ordered or len(dataset) <= dataset.num_episodes:
        return {}
    answers = []
    for episodes in _by_logging_policy(dataset, _ROWS_PER_FEATURE * encoded.fitted.dim):
        pair = _logged_values(encoded, episodes, question, ridge)
        if pair is None or len(pair[1]) < 2:
            continue
        values, returns = pair
        gap, scale = values - returns, float(max(abs(returns.mean()), returns.std()))
        answers.append((float(gap.mean()), float(np.std(gap, ddof=1) / np.sqrt(len(gap))), scale))
    if not answers:
        return {}
    worst = max(answers, key=lambda one: (abs(one[0]) - 2.0 * one[1]) / max(one[2], 1e-300))
    return dict(zip(("self_check_gap", "self_check_error", "self_check_scale"), worst, strict=True))


def _by_logging_policy(dataset: Dataset, least_rows: int) -> list[NDArray[np.int64]]:
    """Episodes of each logging policy that made enough rows; else all episodes as one group."""
    if dataset.behaviour is not None:
        maker = np.unique(dataset.behaviour, return_inverse=True)[1]
        large = np.flatnonzero(np.bincount(maker, weights=dataset.lengths) >= least_rows)
        if len(large):
            return [np.flatnonzero(maker == one) for one in large]
    return [np.arange(dataset.num_episodes)]


def _logged_values(
    encoded: Encoded, episodes: NDArray[np.int64], question: Question, ridge: float
) -> tuple[FloatArray, FloatArray] | None:
    """Value at these episodes' starts of the policy that made them, and their returns; None without a value.

    A record that was cut off is closed with the estimate's own value of its last logged decision, so that the
    comparison is fair for episodes of any length. With a horizon, only episodes that were recorded up to the
    horizon (or to their end) count.
    """
    dataset, discount, horizon = encoded.dataset, question.discount, question.horizon
    last, first = dataset.offsets[1:][episodes] - 1, dataset.offsets[:-1][episodes]
    usable = np.isin(dataset.episode_of, episodes)
    usable[last] = dataset.terminated[last]  # where a record stops, the next action is not in the log
    if not usable.any():
        return None
    moments = encoded.behaviour_moments(np.flatnonzero(usable))
    closed = dataset.terminated[last]
    if horizon is None:
        theta = lspe(moments, discount, iterations=1, ridge=ridge).lstd
        if theta is None:
            return None
        closing = np.where(closed, dataset.rewards[last], encoded.logged(last) @ theta)
        to_go = returns_to_go(dataset.rewards, last, dataset.lengths[episodes], closing, discount)
        return encoded.logged(first) @ theta, to_go[first]
    seen = closed | (dataset.lengths[episodes] >= horizon)
    if not seen.any():
        return None
    theta = lspe(moments, discount, horizon=horizon, ridge=ridge).theta
    returns = discounted_returns(dataset, discount, horizon)[episodes]
    return encoded.logged(first[seen]) @ theta, returns[seen]
