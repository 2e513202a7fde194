"""`improve`: of several candidates and the logged behaviour, at each state the best by a lower bound.

Values of all candidates are learned on one half of the units. The improved policy takes, where its action is
supported by the log, the candidate whose V(s) less its error is highest (generalised policy improvement, with
lower bounds), else the logged behaviour. The other half of the units judges it: where the lower bound of its
difference to the logged policy is below 0, the logged policy is returned.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.comparison import Difference
from bcrl.data.dataset import Array, Dataset
from bcrl.data.select import folds
from bcrl.data.sources import load_dataset
from bcrl.doctor import examine, stop_at_errors
from bcrl.estimate import Estimate, FloatArray
from bcrl.estimators.consensus import Consensus
from bcrl.estimators.lspe.method import LSPE
from bcrl.inference.budget import decided
from bcrl.inference.contrast import difference_to, logged_value, not_alike
from bcrl.methods import Estimator
from bcrl.next_steps.asking import KnownTarget, Places, ask, method_of
from bcrl.next_steps.bounds import beyond_the_log
from bcrl.policies import load_policy
from bcrl.policies.guarded import Guarded, GuardedDiscrete, guarded, known_actions
from bcrl.policies.local import LocalLog
from bcrl.policies.policy import AnyPolicy, resolve_policy
from bcrl.question import Question
from bcrl.representations.fixed import RandomFeatures
from bcrl.training import Run, silent

LEARNER = LSPE(RandomFeatures(dim=200, widths=(0.7, 1.4)))
_DEVIATIONS = 1.0  # standard errors that a candidate's V is lowered by before it is compared


@dataclass(frozen=True, eq=False)
class Improved:
    """A policy that asks several candidates; see the text above.

    Attributes:
        guards: each candidate, guarded by the log.
        answers: what each is worth, with V(s) anywhere; the last one's is the logged behaviour's.
        template: a dataset of no rows, that knows the observations' form.
        reads: everything.
    """

    guards: tuple[Guarded, ...]
    answers: tuple[Estimate, ...]
    template: Dataset
    reads: None = None

    def choice(self, observations: Any) -> FloatArray:  # noqa: ANN401 - one array or a dict
        """Which of the candidates acts at each state; the last is the logged behaviour."""
        keyed = self.template.keyed(observations)
        lows = []
        for answer in self.answers:
            function = answer.value_function
            assert function is not None
            error = function.standard_error(keyed)
            lows.append(function.value(keyed) - _DEVIATIONS * (0.0 if error is None else error))
        return np.asarray(np.argmax(np.stack(lows, axis=1), axis=1))


class ImprovedDiscrete(Improved):
    """Of discrete actions."""

    def probabilities(self, observations: Any) -> FloatArray:  # noqa: ANN401
        tables = [g.probabilities(observations) for g in self.guards if isinstance(g, GuardedDiscrete)]
        return np.asarray(np.stack(tables, axis=1)[np.arange(len(tables[0])), self.choice(observations)])


class ImprovedContinuous(Improved):
    """Of continuous actions."""

    def sample(self, observations: Any, generator: np.random.Generator) -> Array:  # noqa: ANN401
        return self.sample_many(observations, generator, 1)[:, 0]

    def sample_many(self, observations: Any, generator: np.random.Generator, count: int) -> Array:  # noqa: ANN401
        """Many actions a state, whose candidate is chosen once, shape (q, count, *shape of an action)."""
        drawn = [
            guard.sample_many(observations, generator, count)
            for guard in self.guards
            if not isinstance(guard, GuardedDiscrete)
        ]
        return np.asarray(np.stack(drawn, axis=1)[np.arange(len(drawn[0])), self.choice(observations)])

    def log_prob(self, observations: Any, actions: Array) -> FloatArray:  # noqa: ANN401
        return self.guards[0].log_prob(observations, actions)  # type: ignore[union-attr]


@dataclass(frozen=True, eq=False)
class Improvement:
    """What `improve` found.

    Attributes:
        policy: the improved policy, or the logged behaviour where nothing better could be shown.
        improved: which of the two it is.
        estimate: the improved policy's value on the units that judged it.
        difference: of that value to the logged policy's, with its decision.
        at_least: lower bound of that difference, paired; below 0 the logged policy is returned.
        used: share of the judging rows at which each candidate acts; "logged" is the rest.
    """

    policy: AnyPolicy
    improved: bool
    estimate: Estimate
    difference: Difference
    at_least: float
    used: Mapping[str, float]

    @property
    def sentence(self) -> str:
        """For a person."""
        low = self.at_least
        if self.improved:
            return f"It earns {self.difference.value:.4g} more than the log, at least {low:.4g}."
        return (
            f"Nothing better than the log could be shown (difference {self.difference.value:.4g}, at least "
            f"{low:.4g}): the logged policy is returned."
        )


def improve(
    dataset: Dataset | str | Path,
    candidates: Mapping[str, Any],
    *,
    discount: float,
    behaviour: Any = None,  # noqa: ANN401 - a policy, a callable or a path
    method: Estimator | str | None = None,
    judge: Estimator | str | None = None,
    horizon: int | None = None,
    seed: int = 0,
    trust: bool = False,
    run: Run | None = None,
) -> Improvement:
    """A policy that is better than the logged one, or the logged one.

    Args:
        dataset: a `Dataset` of vectors with at least 4 units, or a path.
        candidates: policies by name, as in `compare`.
        discount: of the value.
        behaviour: the policy that made the log, where you have it; None: a clone of it, noise included.
        method: learns V(s) of each candidate; None takes random features, in seconds. What they learned is
            judged on the other half, so a bad guess costs the gain and not the safety.
        judge: values what was made of them on the other half; None takes `Consensus`, which is as accurate
            and learns nothing that could have seen the first half.
        horizon, seed, trust: as in `evaluate`.
        run: for trainings.
    """
    data = dataset if isinstance(dataset, Dataset) else load_dataset(dataset)
    given = {
        name: resolve_policy(data, load_policy(one, trust=trust, num_actions=data.num_actions))
        for name, one in candidates.items()
    }
    usual = None
    if behaviour is not None:
        usual = resolve_policy(data, load_policy(behaviour, trust=trust, num_actions=data.num_actions))
    findings = examine(data, given)
    stop_at_errors(findings)
    asked = LEARNER if method is None else method_of(method)
    how = run or Run(show=silent)
    ((learn, other),) = folds(data, "half", seed)
    policy = _learned(learn.dataset, given, usual, discount, horizon, seed, asked, how)
    log = policy.guards[0].log
    question = Question.of(other.dataset, {"improved": policy}, discount=discount, horizon=horizon, seed=seed)
    behave = guarded(policy.guards[-1].new, usual, log, 0.0)
    comparable = not not_alike(question)
    if not comparable:
        question = question.about({"improved": policy, "logged": behave})
    judging = Consensus() if judge is None else method_of(judge)
    answers = ask(judging, question, how, findings)
    base = answers.get("logged") or logged_value(other.dataset, discount=discount, horizon=horizon)
    assert base is not None
    difference = decided(difference_to(answers["improved"], base), answers["improved"], base, 1)
    least = at_least(difference, answers["improved"], base)
    keep = least > 0.0
    chosen = policy.choice(other.dataset.natural(other.dataset.observe(other.dataset.rows)))
    names = [*given, "logged"]
    used = {name: float((chosen == i).mean()) for i, name in enumerate(names)}
    return Improvement(policy if keep else behave, keep, answers["improved"], difference, least, used)


def at_least(difference: Difference, answer: Estimate, base: Estimate) -> float:
    """Lower bound of the difference: its paired one-sided bound, less everything in both budgets that is not
    chance; or the honest interval's lower end, if that is higher. In the pair chance is counted once, where
    both values share the luck of their units; and so is what the views disagree about, where they valued
    both: a view that is off for one policy is off alike for the other, on the same log.

    Minus infinity where there is no bound, or where a value must not be believed whatever its interval.
    """
    if difference.honest is None or difference.lower_bound is None or answer.budget is None:
        return -math.inf
    down, _ = beyond_the_log(answer)  # what lies beyond every logged return counts once on the log's side
    apart = _views_apart(difference, answer, base)
    other = sum(_beside_chance(one, counted=apart is None) for one in (answer, base))
    return max(difference.lower_bound - other - (apart or 0.0) - down, difference.honest.low)


def _beside_chance(estimate: Estimate, *, counted: bool) -> float:
    """The budget's entries that are not chance; with those of the views, where these are counted here."""
    left_out = {"sampling", "beyond the log"} | (set() if counted else {"other views", "Bellman error"})
    entries = () if estimate.budget is None else estimate.budget.entries
    return float(sum(one.amount for one in entries if one.name not in left_out))


def _views_apart(difference: Difference, answer: Estimate, base: Estimate) -> float | None:
    """How far the views' own differences lie from this one, twice the median, for "other views" and "Bellman
    error"; None where they valued one of the two alone, or a view corrects a method's own Q.
    """
    if answer.budget is None or base.budget is None:
        return None
    both = [name for name in answer.stats if name.startswith("evidence/view ") and name in base.stats]
    if not both or any(name.startswith("evidence/correction ") for name in answer.stats):
        return None
    gaps = [abs(answer.stats[name] - base.stats[name] - difference.value) for name in both]
    return 2.0 * answer.budget.multiplier * float(np.median(gaps))


def _learned(
    learn: Dataset,
    given: Mapping[str, AnyPolicy],
    usual: AnyPolicy | None,
    discount: float,
    horizon: int | None,
    seed: int,
    method: Estimator,
    run: Run,
) -> "ImprovedDiscrete | ImprovedContinuous":
    """The improved policy, from one half of the units."""
    question = Question.of(learn, given, discount=discount, horizon=horizon, seed=seed)
    log = LocalLog.of(learn, seed)
    places = Places.of(question, log)
    guards = [guarded(one, usual, log, 1.0) for one in given.values()]
    first = next(iter(given.values()))
    guards.append(guarded(first, usual, log, 0.0))  # a threshold of 0 leaves all to the behaviour
    targets = {}
    everything = learn.natural({key: np.asarray(v) for key, v in learn.observations.items()})
    begin = learn.natural(question.starts.observations)
    for name, guard in zip([*given, "logged"], guards, strict=True):
        target = question.targets[name if name in given else next(iter(given))]
        rows = known_actions(guard, target.actions, places.rows, places.row_unit, everything, seed)[0]
        starts = known_actions(guard, target.start_actions, places.starts, places.start_unit, begin, seed)[0]
        targets[name] = KnownTarget(guard, learn, question.starts, seed, rows, starts)
    answers = method.estimate(replace(question, targets=targets), run)
    kind = ImprovedDiscrete if learn.discrete else ImprovedContinuous
    return kind(tuple(guards), tuple(answers[name] for name in targets), learn.template())
