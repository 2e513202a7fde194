"""Cohorts as guardrails: what a policy is worth in each group of episodes, from that group's episodes alone.

A policy that is better on average may harm some. A group is often too small to learn features on, so every
group is asked by `Consensus`, which trains nothing, with a budget and a decision against the group's own
logged value. All decisions hold together: they are as wide as for that many comparisons.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from bcrl.comparison import Cohort
from bcrl.data.dataset import Dataset
from bcrl.doctor import Finding
from bcrl.errors import BadInput
from bcrl.estimators.consensus import Consensus
from bcrl.inference.budget import LEAST_ROWS, decided, with_budgets
from bcrl.inference.checks import doubts
from bcrl.inference.contrast import difference_to, logged_value, not_alike
from bcrl.question import Question
from bcrl.training import Run

MOST = 20  # groups; with more, each decision is so wide that none says anything


def by_cohort(question: Question, findings: Sequence[Finding]) -> tuple[Cohort, ...]:
    """Every policy in every group, worst first; what the doctor found in the log bears on all of them."""
    groups = groups_of(question.dataset)
    compared = len(groups) * len(question.targets)
    rows = [
        row for name, dataset in groups.items() for row in _rows(name, dataset, question, findings, compared)
    ]
    return tuple(sorted(rows, key=_gain))


def groups_of(dataset: Dataset) -> dict[str, Dataset]:
    """The episodes of each group, by its name."""
    labels = np.asarray(dataset.cohort).astype(str)
    names = np.unique(labels)
    if len(names) > MOST:
        raise BadInput(
            f"The cohort column has {len(names)} groups; expected at most {MOST}. Join them to larger ones, "
            "e.g. ages to decades."
        )
    return {str(name): dataset.select(np.flatnonzero(labels == name)) for name in names}


def _rows(
    name: str, dataset: Dataset, question: Question, findings: Sequence[Finding], compared: int
) -> Iterator[Cohort]:
    if len(dataset) < LEAST_ROWS or dataset.num_units < 2:
        reason = (
            f"{dataset.num_episodes} episodes with {len(dataset)} decisions are too few to say anything; "
            f"expected two or more with {LEAST_ROWS}."
        )
        for policy in question.targets:
            yield Cohort(name, policy, dataset.num_episodes, verdict="distrust", reason=reason)
        return
    inside = Question.of(
        replace(dataset, cohort=None),
        {policy: target.policy for policy, target in question.targets.items()},
        discount=question.discount,
        horizon=question.horizon,
        level=question.level,
        seed=question.seed,
    )
    logged = logged_value(dataset, discount=question.discount, horizon=question.horizon, level=question.level)
    if not_alike(inside):
        logged = None
    for policy, answer in Consensus().estimate(inside, Run()).items():
        estimate = with_budgets({policy: answer}, inside, inside.targets[policy])[policy]
        faults = doubts(
            findings, policy, log_prob=False, discount=question.discount, horizon=question.horizon
        )
        estimate = replace(estimate, checks=(*faults, *estimate.checks))
        gain = None
        if logged is not None:
            gain = decided(difference_to(estimate, logged, question.level), estimate, logged, compared)
        yield Cohort(
            name,
            policy,
            dataset.num_episodes,
            value=estimate.value,
            interval=None if estimate.budget is None else estimate.budget.honest,
            verdict=estimate.verdict,
            logged=None if logged is None else logged.value,
            difference=gain,
            reason=next(iter(estimate.reasons), ""),
        )


def _gain(row: Cohort) -> tuple[int, float]:
    """Groups that are harmed come first, those that nothing is known of last."""
    order = {"worse": 0, "cannot tell": 1, None: 1, "better": 2}
    if row.value is None:
        return 3, 0.0
    if row.difference is None:
        return 1, row.value
    return order[row.difference.decision], row.difference.value
