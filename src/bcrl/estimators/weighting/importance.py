"""Importance sampling: logged episodes, weighted by how likely the target policy would have been to make them.

    per decision:  V = sum_t gamma^t mean_i w_t^i r_t^i        trajectory:  V = mean_i w_T^i sum_t gamma^t r_t^i

with w_t the product of pi(a|s) / b(a|s) over the first t + 1 decisions (Precup, Sutton and Singh, 2000). `self_normalised`
divides by the sum of the weights in place of their number: a bias that vanishes with the data for far less variance.
Nothing is learned, except the logging policy where the data does not hold `log_prob`. What happens after the end of a
record counts as 0: the value is short by about gamma^T of it, which a check states. A deterministic policy of continuous
actions needs a `bandwidth`; the value is then that of the noisy policy. Difference from policy_eval's "iw": the logarithms
are not clipped unless asked (`.dope()` clips them).
"""

import time
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from bcrl.errors import BadInput
from bcrl.estimate import Check, Estimate, FloatArray, Status
from bcrl.estimators.weighting.behaviour import BehaviourCloning, LoggedProbability
from bcrl.estimators.weighting.density import NoisyPolicy, weighable
from bcrl.estimators.weighting.weights import (
    TOO_FEW,
    discounts,
    record_end_check,
    require_own_starts,
    unit_interval,
    weight_checks,
    weighted_sum,
    weights_of,
)
from bcrl.policies.policy import AnyPolicy
from bcrl.printing import short_call
from bcrl.question import Question, Target
from bcrl.training import Run


@dataclass(frozen=True)
class ImportanceSampling:
    """Importance sampling.

    Attributes:
        kind: weight each reward by the decisions before it, or whole episodes by all of their decisions.
        self_normalised: divide by the sum of weights instead of the number of episodes.
        bandwidth: standard deviation of the noise that gives a deterministic policy of continuous actions a density.
        clip: lower and upper end that each decision's log ratio is clipped to; None leaves it.
        behaviour: how the logging policy is estimated where the data has no log_prob.
    """

    kind: Literal["trajectory", "per_decision"] = "per_decision"
    self_normalised: bool = True
    bandwidth: float | None = None
    clip: tuple[float, float] | None = None
    behaviour: BehaviourCloning = field(default_factory=BehaviourCloning)

    __repr__ = short_call

    @classmethod
    def dope(cls, bandwidth: float | None = 0.1) -> "ImportanceSampling":
        """The "iw" of the DOPE benchmark: per decision, self-normalised, log ratios in [-6, 2], noise 0.1 where needed."""
        return cls(bandwidth=bandwidth, clip=(-6.0, 2.0))

    def estimate(self, question: Question, run: Run) -> dict[str, Estimate]:
        if self.kind not in ("trajectory", "per_decision"):
            raise BadInput(f"kind={self.kind!r}; expected 'trajectory' or 'per_decision'.")
        require_own_starts(question.dataset, question.starts, "ImportanceSampling")
        weighed = weighable(question, self.bandwidth, "ImportanceSampling")
        logged = self.behaviour.fit(question.dataset, seed=question.seed, run=run)
        return {name: self._one(weighed, target, logged) for name, target in weighed.targets.items()}

    def _one(self, question: Question, target: Target, logged: LoggedProbability) -> Estimate:
        began = time.monotonic()
        dataset, discount, horizon = question.dataset, question.discount, question.horizon
        weights = weights_of(dataset, log_ratios(target, logged, self.clip), horizon)
        scale = discounts(discount, weights.log.shape[1])
        payoff = weights.payoff(dataset.rewards)
        if self.kind == "trajectory":
            payoff, scale, weights = (payoff @ scale)[:, None], np.ones(1), weights.last()
        value, influence = weighted_sum(weights, payoff, scale, self_normalised=self.self_normalised)
        checks, ess, least = weight_checks(weights, scale)
        error, interval, per_unit = unit_interval(dataset, value, influence, question.level)
        return Estimate(
            value=value,
            method=repr(self),
            discount=discount,
            horizon=horizon,
            interval=interval,
            standard_error=error,
            influence=per_unit,
            status=Status.DEGENERATE if least < TOO_FEW else Status.CONVERGED,
            checks=(
                *checks,
                record_end_check(dataset, discount, horizon),
                *noise_checks(target.policy),
                *logged.checks,
            ),
            curves={"effective_sample_size": ess.tolist(), **logged.curves},
            stats={"effective_sample_size": least, **logged.stats},
            timings={"behaviour": logged.seconds, "weights": time.monotonic() - began},
        )


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


def noise_checks(policy: AnyPolicy) -> tuple[Check, ...]:
    """A word on the noise that was put on a deterministic policy; nothing for the others."""
    if not isinstance(policy, NoisyPolicy):
        return ()
    meaning = (
        f"The value is that of the policy plus noise of standard deviation {policy.bandwidth:g} "
        "on its actions, not of the policy itself."
    )
    return (Check("noise on the policy", policy.bandwidth, None, "caution", meaning),)
