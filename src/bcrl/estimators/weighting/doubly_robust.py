"""Doubly robust evaluation: a learned Q, corrected by importance weights where the data disagrees with it.

    V = mean_i V_q(s_0^i) + sum_t gamma^t sum_i w_t^i td_t^i / B_t
    td_t = r_t + gamma (1 - terminated) V_q(s_{t+1}) - Q(s_t, a_t)

Right when either the weights or Q are right (Jiang and Li, 2016). B_t is the number of episodes, or with
`weighted` the sum of the weights at step t (Thomas and Brunskill, 2016), arranged as in DOPE's
policy_eval; V_q at a record's last observation replaces what was not recorded. Differences from
policy_eval: V_q is masked after a termination, weights of finished episodes are carried on, log ratios are
clipped only when asked (`.dope()`), and Q comes from any method with one.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Dataset
from bcrl.errors import BadInput
from bcrl.estimate import Check, Estimate, FloatArray, Status, short_call
from bcrl.estimators.fqe.method import FQE
from bcrl.estimators.weighting.behaviour import BehaviourCloning
from bcrl.estimators.weighting.weighted_log import WeightedLog, weighable
from bcrl.estimators.weighting.weights import weighted_sum
from bcrl.linear import td_errors
from bcrl.options import RISING, Checked, Positive
from bcrl.question import Question
from bcrl.training import Run

# Observations per call of V_q. It draws a stochastic policy's actions, so another size gives other draws.
_CHUNK = 1024


@runtime_checkable
class ActionValue(Protocol):
    """V(s) and Q(s, a) of the evaluated policy."""

    def value(self, observations: Mapping[str, NDArray[Any]]) -> FloatArray: ...

    def q(self, observations: Mapping[str, NDArray[Any]], actions: NDArray[np.float32]) -> FloatArray: ...


class WithQ(Protocol):
    """A method whose estimates' `value_function` is an `ActionValue`: FQE, LSPE, or one of the user's own."""

    def estimate(self, question: Question, run: Run) -> dict[str, Estimate]: ...


@dataclass(frozen=True)
class DoublyRobust(Checked):
    """Doubly robust evaluation.

    Attributes:
        q: the method that Q comes from.
        weighted: normalise the weights of each step by their sum instead of the number of episodes.
        bandwidth: standard deviation of the noise that gives a deterministic continuous policy a density.
        clip: lower and upper end that each decision's log ratio is clipped to; None leaves it.
        behaviour: how the logging policy is estimated where the data has no log_prob.
    """

    q: WithQ = field(default_factory=FQE)
    weighted: bool = True
    bandwidth: Positive | None = None
    clip: Annotated[tuple[float, float], RISING] | None = None
    behaviour: BehaviourCloning = field(default_factory=BehaviourCloning)
    reads_log_prob: ClassVar[bool] = True
    least_transitions: ClassVar[int] = 20

    __repr__ = short_call

    @classmethod
    def dope(cls, bandwidth: float | None = 0.1) -> "DoublyRobust":
        """DOPE's "dr": weighted, log ratios in [-6, 2], noise 0.1 where needed, DOPE's FQE."""
        return cls(q=FQE.dope(), bandwidth=bandwidth, clip=(-6.0, 2.0))

    def estimate(self, question: Question, run: Run) -> dict[str, Estimate]:
        if question.horizon is not None:
            raise BadInput(
                f"DoublyRobust can only value the whole future; got horizon={question.horizon}. "
                "Leave horizon out, or use ImportanceSampling, LSPE or ModelBased."
            )
        asked = weighable(question, self.bandwidth, "DoublyRobust")
        logged = self.behaviour.fit(question.dataset, seed=question.seed, run=run)
        models = self.q.estimate(asked, run.within("q"))
        estimates = {}
        for name, target in asked.targets.items():
            began, model = time.monotonic(), models[name]
            plain = self._estimate_one(WeightedLog.of(asked, target, logged, self.clip), model)
            timings = {"behaviour": logged.seconds, "q": sum(model.timings.values())}
            estimates[name] = replace(plain, timings=timings | {"weights": time.monotonic() - began})
        return estimates

    def _estimate_one(self, log: WeightedLog, model: Estimate) -> Estimate:
        dataset = log.question.dataset
        v, q = values_along(dataset, model)
        next_v, discount = v[dataset.rows + 1], log.question.discount
        errors = td_errors(dataset.rewards, dataset.terminated, q, next_v, discount)
        correction, influence = weighted_sum(
            log.weights, log.weights.by_step(errors), self_normalised=self.weighted
        )
        first = v[dataset.start_rows]
        plain = log.estimate(
            repr(self),
            float(first.mean()) + correction,
            influence + (first - first.mean()) / len(first),
            check=model_check(model),
            curves=model.curves,
            stats={"q_value": model.value, "correction": correction},
        )
        weights_fail = plain.status is Status.DEGENERATE and model.status is not Status.DIVERGED
        return plain if weights_fail else replace(plain, status=model.status)


def model_check(model: Estimate) -> Check:
    """The verdict of the method that Q comes from; it counts less here, because the weights correct Q."""
    verdict = "trust" if model.verdict == "trust" else "caution"
    reasons = " ".join(model.reasons[:1])
    meaning = f"Q alone gives {model.value:.4g} and says {model.verdict!r}. {reasons}".strip()
    return Check("the method behind Q", model.value, None, verdict, meaning)  # type: ignore[arg-type]


def values_along(dataset: Dataset, model: Estimate) -> tuple[FloatArray, FloatArray]:
    """V_q at every observation row, shape (N + E,), and Q at every logged decision, shape (N,)."""
    function = model.value_function
    if not isinstance(function, ActionValue):
        raise BadInput(
            f"{model.method} has no Q(s, a); DoublyRobust needs a method with one: FQE(...) or LSPE(...)."
        )
    v = [function.value(dataset.observe(rows)) for rows in _chunks(len(dataset) + dataset.num_episodes)]
    q = [
        function.q(dataset.observe(dataset.rows[index]), dataset.action_matrix(dataset.actions[index]))
        for index in _chunks(len(dataset))
    ]
    return np.concatenate(v).astype(np.float64), np.concatenate(q).astype(np.float64)


def _chunks(count: int) -> list[NDArray[np.int64]]:
    return [np.arange(first, min(first + _CHUNK, count)) for first in range(0, count, _CHUNK)]
