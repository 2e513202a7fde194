"""Importance sampling: logged episodes, weighted by how likely they are under the target policy.

    per decision:  V = sum_t gamma^t mean_i w_t^i r_t^i      trajectory:  V = mean_i w_T^i sum_t gamma^t r_t^i

with w_t the product of pi(a|s) / b(a|s) over the first t + 1 decisions (Precup, Sutton and Singh, 2000).
`self_normalised` divides by the sum of the weights in place of their number: a bias that vanishes with the
data for far less variance. Nothing is learned, except the logging policy where the data does not hold
`log_prob`. What happens after the end of a record counts as 0: the value is short by about gamma^T of it,
which a check states. A deterministic policy of continuous actions needs a `bandwidth`; the value is then
that of the noisy policy. Difference from policy_eval's "iw": the logarithms are not clipped unless asked
(`.dope()` clips them).
"""

import time
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

from bcrl.estimate import Check, Estimate, short_call
from bcrl.estimators.weighting.behaviour import BehaviourCloning
from bcrl.estimators.weighting.weighted_log import WeightedLog, weighable
from bcrl.estimators.weighting.weights import weighted_sum
from bcrl.inference.contrast import unseen_share
from bcrl.options import RISING, Checked, Positive
from bcrl.question import Question
from bcrl.training import Run


@dataclass(frozen=True)
class ImportanceSampling(Checked):
    """Importance sampling.

    Attributes:
        kind: weight each reward by the decisions before it, or each episode by all of its decisions.
        self_normalised: divide by the sum of weights instead of the number of episodes.
        bandwidth: standard deviation of the noise that gives a deterministic continuous policy a density.
        clip: lower and upper end that each decision's log ratio is clipped to; None leaves it.
        behaviour: how the logging policy is estimated where the data has no log_prob.
    """

    kind: Literal["trajectory", "per_decision"] = "per_decision"
    self_normalised: bool = True
    bandwidth: Positive | None = None
    clip: Annotated[tuple[float, float], RISING] | None = None
    behaviour: BehaviourCloning = field(default_factory=BehaviourCloning)
    reads_log_prob: ClassVar[bool] = True
    least_transitions: ClassVar[int] = 10

    __repr__ = short_call

    @classmethod
    def dope(cls, bandwidth: float | None = 0.1) -> "ImportanceSampling":
        """DOPE's "iw": per decision, self-normalised, log ratios in [-6, 2], noise 0.1 where needed."""
        return cls(bandwidth=bandwidth, clip=(-6.0, 2.0))

    def estimate(self, question: Question, run: Run) -> dict[str, Estimate]:
        asked = weighable(question, self.bandwidth, "ImportanceSampling")
        logged = self.behaviour.fit(question.dataset, seed=question.seed, run=run)
        estimates = {}
        for name, target in asked.targets.items():
            began = time.monotonic()
            plain = self._estimate_one(WeightedLog.of(asked, target, logged, self.clip))
            timings = {"behaviour": logged.seconds, "weights": time.monotonic() - began}
            estimates[name] = replace(plain, timings=timings)
        return estimates

    def _estimate_one(self, log: WeightedLog) -> Estimate:
        rewards = log.weights.by_step(log.question.dataset.rewards)
        if self.kind == "trajectory":
            rewards = (rewards @ log.weights.discounts)[:, None]
            log = replace(log, weights=log.weights.per_episode())
        value, influence = weighted_sum(log.weights, rewards, self_normalised=self.self_normalised)
        return log.estimate(repr(self), value, influence, check=record_end_check(log.question))


def record_end_check(question: Question) -> Check:
    """How much of the value lies beyond the records' end: gamma^T of episodes that did not terminate."""
    share = unseen_share(question.dataset, question.discount, question.horizon)
    meaning = (
        f"{100 * share:.1f}% of the discounted steps lie after the end of the records and count as 0 here."
    )
    verdict = "trust" if share < 0.02 else "caution" if share < 0.1 else "distrust"
    return Check("value beyond the records", share, 0.02, verdict, meaning)  # type: ignore[arg-type]
