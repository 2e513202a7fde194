"""Doubly robust evaluation: a learned Q, corrected by importance weights where the data disagrees with it.

    V = mean_i V_q(s_0^i) + sum_t gamma^t  sum_i w_t^i [ r_t + gamma (1 - terminated) V_q(s_{t+1}) - Q(s_t, a_t) ] / B_t

Right when either the weights or Q are right (Jiang and Li, 2016). B_t is the number of episodes, or with `weighted` the sum
of the weights at step t (Thomas and Brunskill, 2016), arranged as in DOPE's policy_eval; V_q at a record's last observation
stands for what was not recorded. Differences from policy_eval: V_q is masked after a termination, weights of finished
episodes are carried on, log ratios are clipped only when asked (`.dope()`), and Q comes from any method with one.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Dataset
from bcrl.errors import BadInput
from bcrl.estimate import Check, Estimate, FloatArray, Status
from bcrl.estimators.fqe.method import FQE
from bcrl.estimators.lspe.method import LSPE
from bcrl.estimators.weighting.behaviour import BehaviourCloning, LoggedProbability
from bcrl.estimators.weighting.density import weighable
from bcrl.estimators.weighting.importance import log_ratios, noise_checks
from bcrl.estimators.weighting.weights import (
    TOO_FEW,
    discounts,
    require_own_starts,
    unit_interval,
    weight_checks,
    weighted_sum,
    weights_of,
)
from bcrl.printing import short_call
from bcrl.question import Question, Target
from bcrl.training import Run


@runtime_checkable
class ActionValue(Protocol):
    """V(s) and Q(s, a) of the evaluated policy."""

    def value(self, observations: Mapping[str, NDArray[Any]]) -> FloatArray: ...

    def q(self, observations: Mapping[str, NDArray[Any]], actions: NDArray[np.float32]) -> FloatArray: ...


@dataclass(frozen=True)
class DoublyRobust:
    """Doubly robust evaluation.

    Attributes:
        q: the method that Q comes from.
        weighted: normalise the weights of each step by their sum instead of the number of episodes.
        bandwidth: standard deviation of the noise that gives a deterministic policy of continuous actions a density.
        clip: lower and upper end that each decision's log ratio is clipped to; None leaves it.
        behaviour: how the logging policy is estimated where the data has no log_prob.
        chunk: observations per call of Q.
    """

    q: FQE | LSPE = field(default_factory=FQE)
    weighted: bool = True
    bandwidth: float | None = None
    clip: tuple[float, float] | None = None
    behaviour: BehaviourCloning = field(default_factory=BehaviourCloning)
    chunk: int = 1024

    __repr__ = short_call

    @classmethod
    def dope(cls, bandwidth: float | None = 0.1) -> "DoublyRobust":
        """The "dr" of the DOPE benchmark: weighted, log ratios in [-6, 2], noise 0.1 where needed, DOPE's FQE."""
        return cls(q=FQE.dope(), bandwidth=bandwidth, clip=(-6.0, 2.0))

    def estimate(self, question: Question, run: Run) -> dict[str, Estimate]:
        if question.horizon is not None:
            raise BadInput(
                f"DoublyRobust values the whole future; got horizon={question.horizon}. "
                "Leave horizon out, or use ImportanceSampling, LSPE or ModelBased."
            )
        require_own_starts(question.dataset, question.starts, "DoublyRobust")
        weighed = weighable(question, self.bandwidth, "DoublyRobust")
        logged = self.behaviour.fit(question.dataset, seed=question.seed, run=run)
        models = self.q.estimate(weighed, run.within("q"))
        return {
            name: self._one(weighed, target, logged, models[name]) for name, target in weighed.targets.items()
        }

    def _one(
        self, question: Question, target: Target, logged: LoggedProbability, model: Estimate
    ) -> Estimate:
        began = time.monotonic()
        dataset, discount = question.dataset, question.discount
        weights = weights_of(dataset, log_ratios(target, logged, self.clip), None)
        scale = discounts(discount, weights.log.shape[1])
        v, q = values_along(dataset, model, self.chunk)
        surprise = td_errors(dataset, v, q, discount)
        correction, influence = weighted_sum(
            weights, weights.payoff(surprise), scale, self_normalised=self.weighted
        )
        first = v[dataset.start_rows]
        value = float(first.mean()) + correction
        influence = influence + (first - first.mean()) / len(first)
        checks, ess, least = weight_checks(weights, scale)
        error, interval, per_unit = unit_interval(dataset, value, influence, question.level)
        return Estimate(
            value=value,
            method=repr(self),
            discount=discount,
            interval=interval,
            standard_error=error,
            influence=per_unit,
            status=_status(least, model),
            checks=(*checks, _model_check(model), *noise_checks(target.policy), *logged.checks),
            curves={"effective_sample_size": ess.tolist(), **model.curves, **logged.curves},
            stats={
                "effective_sample_size": least,
                "q_value": model.value,
                "correction": correction,
                **logged.stats,
            },
            timings={
                "behaviour": logged.seconds,
                "q": sum(model.timings.values()),
                "weights": time.monotonic() - began,
            },
        )


def _status(least: float, model: Estimate) -> Status:
    if model.status is Status.DIVERGED:
        return Status.DIVERGED
    return Status.DEGENERATE if least < TOO_FEW else model.status


def _model_check(model: Estimate) -> Check:
    """What the model thought of itself: its doubts weigh less here, since the weights correct it."""
    verdict = "trust" if model.verdict == "trust" else "caution"
    reasons = " ".join(model.reasons[:1])
    meaning = f"Q alone gives {model.value:.4g} and says {model.verdict!r}. {reasons}".strip()
    return Check("the method behind Q", model.value, None, verdict, meaning)  # type: ignore[arg-type]


def values_along(dataset: Dataset, model: Estimate, chunk: int) -> tuple[FloatArray, FloatArray]:
    """V_q at every observation row, shape (N + E,), and Q at every logged decision, shape (N,)."""
    function = model.value_function
    if not isinstance(function, ActionValue):
        raise BadInput(
            f"{model.method} has no Q(s, a); DoublyRobust needs a method with one: FQE(...) or LSPE(...)."
        )
    rows = len(dataset) + dataset.num_episodes
    v = [
        function.value(dataset.observe(np.arange(first, min(first + chunk, rows))))
        for first in range(0, rows, chunk)
    ]
    q = []
    for first in range(0, len(dataset), chunk):
        index = np.arange(first, min(first + chunk, len(dataset)))
        actions = dataset.action_matrix(dataset.actions[index])
        q.append(function.q(dataset.observe(dataset.rows[index]), actions))
    return np.concatenate(v).astype(np.float64), np.concatenate(q).astype(np.float64)


def td_errors(dataset: Dataset, v: FloatArray, q: FloatArray, discount: float) -> FloatArray:
    """r + gamma (1 - terminated) V(s') - Q(s, a) of every transition, shape (N,)."""
    following = np.where(dataset.terminated, 0.0, v[dataset.rows + 1])
    return np.asarray(dataset.rewards + discount * following - q, dtype=np.float64)
