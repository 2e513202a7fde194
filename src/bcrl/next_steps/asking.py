"""A method asked about policies whose actions on the log are known, with the budget of each answer."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bcrl.doctor import Finding
from bcrl.estimate import Estimate
from bcrl.inference.budget import FLOOR, with_budgets
from bcrl.inference.checks import doubts
from bcrl.inference.contrast import discounted_returns
from bcrl.inference.intervals import quantile
from bcrl.methods import Estimator, parse_method
from bcrl.policies.local import LocalLog
from bcrl.policies.policy import TargetActions
from bcrl.question import Question, Target
from bcrl.training import Run


@dataclass(frozen=True, eq=False)
class KnownTarget(Target):
    """A policy whose actions at the log's rows and at the starts were made elsewhere.

    So that a row's own unit can be left out when the log is asked what is near it, which a policy that sees
    nothing but the observation cannot do.
    """

    at_rows: TargetActions
    at_starts: TargetActions

    @property
    def actions(self) -> TargetActions:  # type: ignore[override]
        return self.at_rows

    @property
    def start_actions(self) -> TargetActions:  # type: ignore[override]
        return self.at_starts


@dataclass(frozen=True, eq=False)
class Places:
    """Codes and units of the rows and of the starts of a question, as `LocalLog` reads them."""

    rows: NDArray[np.float64]
    row_unit: NDArray[np.int64]
    starts: NDArray[np.float64]
    start_unit: NDArray[np.int64]

    @classmethod
    def of(cls, question: Question, log: LocalLog) -> "Places":
        dataset, starts = question.dataset, question.starts
        keys = [key for key in dataset.observations if key not in dataset.pixel_keys]
        rows = log.codes({key: np.asarray(dataset.observations[key]) for key in keys})
        unit = np.full(len(starts), -1, dtype=np.int64) if starts.unit is None else starts.unit
        return cls(
            rows,
            np.repeat(dataset.units, dataset.lengths + 1),
            log.codes({key: np.asarray(starts.observations[key]) for key in keys}),
            unit,
        )


def method_of(method: Estimator | str) -> Estimator:
    """The method, from its text where it is one."""
    chosen: Estimator = parse_method(method) if isinstance(method, str) else method
    return chosen


def quick_margin(answer: Estimate, question: Question) -> float:
    """How far a `Consensus` may be off, without the budget's own views, which take longer than the answer.

    Sampling, the spread of the views for the Bellman error and for other views, and the floor: the entries
    that count where a process stops before it does anything unlike the log.
    """
    sizes = np.abs(question.dataset.rewards)
    episodes = replace(question.dataset, rewards=sizes)
    scale = float(discounted_returns(episodes, question.discount, question.horizon).mean())
    chance = 0.0 if answer.standard_error is None else quantile(0.95) * answer.standard_error
    return chance + 2.0 * answer.stats["views_apart"] + FLOOR * max(scale, abs(answer.value))


def ask(
    method: Estimator, question: Question, run: Run, findings: Iterable[Finding] = ()
) -> dict[str, Estimate]:
    """The method's answers, each with its budget and with what the doctor found."""
    found = list(findings)
    answers = {}
    for name, answer in method.estimate(question, run).items():
        budgeted = with_budgets({name: answer}, question, question.targets[name])[name]
        reads = getattr(method, "reads_log_prob", False)
        checks = doubts(found, name, log_prob=reads, discount=question.discount, horizon=question.horizon)
        answers[name] = replace(budgeted, checks=(*checks, *budgeted.checks))
    return answers
