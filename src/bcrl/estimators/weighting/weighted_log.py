"""The log as evidence about one policy: what importance sampling and doubly robust evaluation share.

`weighable` turns a question into one that weights can answer, `WeightedLog.of` weights the log for one of
its policies, the method applies the weights to its own numbers, and `WeightedLog.estimate` makes the
estimate with its checks.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bcrl.errors import BadInput
from bcrl.estimate import Check, Estimate, FloatArray, Status
from bcrl.estimators.weighting.behaviour import LoggedProbability
from bcrl.estimators.weighting.density import noise_checks, with_density
from bcrl.estimators.weighting.weights import Weights, effective_sample_size, pareto_k
from bcrl.inference.checks import graded
from bcrl.inference.intervals import unit_interval
from bcrl.question import Question, Target

# Episodes' worth of evidence, at steps whose discount is at least this share of the first one's.
ENOUGH, TOO_FEW, STILL_COUNTS = 30.0, 5.0, 0.01


def weighable(question: Question, bandwidth: float | None, method: str) -> Question:
    """The question about policies that have a density: each itself, or with noise where it has none.

    Refuses start states given by the user: weights can only use the data's own starts.
    """
    question.dataset.require_order(method)
    if question.starts.unit is None:
        raise BadInput(
            f"{method} values the logged episodes from where they begin; "
            "it cannot use other start states. "
            "Leave starts= out, or use a method with V(s) (LSPE, FQE, ModelBased)."
        )
    policies = {
        name: with_density(question.dataset, target.policy, bandwidth, method)
        for name, target in question.targets.items()
    }
    changed = any(policies[name] is not target.policy for name, target in question.targets.items())
    return question.about(policies) if changed else question


def log_ratios(target: Target, logged: LoggedProbability, clip: tuple[float, float] | None) -> FloatArray:
    """log pi(a|s) - log b(a|s) of every logged action, shape (N,)."""
    if not np.isfinite(logged.log_prob).all():
        row = int(np.flatnonzero(~np.isfinite(logged.log_prob))[0])
        raise BadInput(
            f"log_prob[{row}] is {logged.log_prob[row]}: a logged action cannot have had probability 0. "
            "Give its log probability under the logging policy, or leave log_prob out."
        )
    ratio = target.log_prob - logged.log_prob
    return ratio if clip is None else np.clip(ratio, *clip)


@dataclass(frozen=True, eq=False)
class WeightedLog:
    """The logged episodes with the weights that one policy gives them.

    Attributes:
        question: what is asked.
        target: the policy.
        logged: log probability of every logged action under the logging policy.
        weights: of every episode and step.
    """

    question: Question
    target: Target
    logged: LoggedProbability
    weights: Weights

    @classmethod
    def of(
        cls, question: Question, target: Target, logged: LoggedProbability, clip: tuple[float, float] | None
    ) -> "WeightedLog":
        """The log weighted for this policy; `clip` are the ends of a decision's log ratio."""
        ratios = log_ratios(target, logged, clip)
        weights = Weights.of(question.dataset, ratios, question.discount, question.horizon)
        return cls(question, target, logged, weights)

    def estimate(
        self,
        method: str,
        value: float,
        influence: FloatArray,
        *,
        check: Check,
        curves: Mapping[str, list[float]] | None = None,
        stats: Mapping[str, float] | None = None,
    ) -> Estimate:
        """The estimate of a value that these weights made; the caller adds its timings.

        Args:
            method: the call that made it.
            value: of the policy.
            influence: of each episode, (E,).
            check, curves, stats: the method's own, beside those of the weights and of the logging policy.
        """
        sizes = effective_sample_size(self.weights)
        counting = np.flatnonzero(self.weights.discounts >= STILL_COUNTS * self.weights.discounts[0])
        least, last = float(sizes[counting].min()), int(counting[-1])
        tail = pareto_k(self.weights.log[self.weights.observed[:, last], last])
        error, interval, per_unit = unit_interval(
            self.question.dataset, value, influence, self.question.level
        )
        return Estimate(
            value=value,
            method=method,
            discount=self.question.discount,
            horizon=self.question.horizon,
            interval=interval,
            standard_error=error,
            influence=per_unit,
            status=Status.DEGENERATE if least < TOO_FEW else Status.CONVERGED,
            checks=(
                size_check(least, len(self.weights.log)),
                tail_check(tail, len(self.weights.log)),
                mean_check(self.weights.log[self.weights.observed[:, last], last]),
                check,
                *noise_checks(self.target.policy),
                *self.logged.checks,
            ),
            curves={"effective_sample_size": sizes.tolist(), **(curves or {}), **self.logged.curves},
            stats={"effective_sample_size": least, **(stats or {}), **self.logged.stats},
        )


def size_check(least: float, episodes: int) -> Check:
    """The least effective sample size at the steps that count."""
    few = least < ENOUGH
    meaning = f"The weights leave as much evidence as {least:.1f} of {episodes} episodes" + (
        ": very few episodes decide the value." if few else "."
    )
    verdict = "distrust" if least < TOO_FEW else "caution" if few else "trust"
    return Check("effective sample size", least, TOO_FEW, verdict, meaning)  # type: ignore[arg-type]


def mean_check(log_weights: FloatArray) -> Check:
    """Weights average to 1 where the log's probabilities are right and its episodes reach where the policy's
    do."""
    with np.errstate(over="ignore"):
        weights = np.exp(log_weights)
        mean = float(weights.mean())
        error = float(weights.std() / np.sqrt(len(weights)))
    off = abs(mean - 1.0)
    verdict = graded(off, max(0.1, 2.0 * error), max(0.5, 3.0 * error))
    ending = (
        "."
        if verdict == "trust"
        else ": the log lacks episodes that the policy would have, or its probabilities are wrong."
    )
    return Check(
        "mean weight", mean, 1.0, verdict, f"The weights average to {mean:.2f} and should to 1{ending}"
    )


def tail_check(k: float | None, episodes: int) -> Check:
    """Whether the weights can be averaged."""
    if k is None:
        meaning = f"{episodes} episodes are too few to judge the weights' tail."
        return Check("Pareto k of the weights", k, 0.7, "caution", meaning)
    heavy = "so heavy that averages of weights are unreliable" if k > 0.7 else "light enough to average"
    meaning = f"The tail of the weights is {heavy} (Pareto k {k:.2f})."
    return Check("Pareto k of the weights", k, 0.7, graded(k, 0.7, 1.0), meaning)
