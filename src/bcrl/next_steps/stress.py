"""Stress tests: would the method find something where there is nothing, and what would turn the decision?

    placebo reward     what a step paid beyond that step's mean, dealt anew between episodes of equal length
    shuffled actions   the logged actions dealt anew between all rows
    left out           each cohort (yours, else each logging policy, else a sixth of the log in its order)
    hidden confounder  bandits, and sequences whose hidden causes do not last: how strong must one be?

After the first two no policy can be better or worse than another, so a decision is a false alarm; so is a
difference of more than a tenth of the scale that lies beyond twice the method's own interval.

A hidden cause of strength Gamma changes the odds of the logged action by a factor of at most Gamma (the
marginal sensitivity model of Tan, 2006). Where it is drawn anew at every step, whatever came before, the
mean of Y = r + discount V(s') given (s, a) is then no lower than (Dorn and Guo, 2022; Bruns-Smith and Zhou,
2023)

    E[Y] - (1 - e)(1 - 1 / Gamma) (E[Y] - E[Y | Y in its lowest share 1 / (1 + Gamma)])

with e the logged probability of a, and V falls by the sum of these along the policy's way.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from bcrl import salts
from bcrl.comparison import Difference
from bcrl.data.dataset import Dataset
from bcrl.data.select import some_episodes
from bcrl.data.sources import load_dataset
from bcrl.doctor import examine, stop_at_errors
from bcrl.errors import BadInput
from bcrl.estimate import TRUST_WIDTH, Estimate, FloatArray, Verdict, worst
from bcrl.estimators.consensus import Consensus
from bcrl.inference.budget import decided
from bcrl.inference.contrast import difference_to, logged_value, not_alike
from bcrl.inference.inputs import inputs_of
from bcrl.inference.views.chain import chain_view
from bcrl.inference.views.linear import linear_views
from bcrl.methods import Estimator
from bcrl.next_steps.asking import ask, method_of
from bcrl.policies import load_policy
from bcrl.policies.policy import AnyPolicy, resolve_policy
from bcrl.question import Question
from bcrl.training import Run, silent

_ROWS = 4_000  # transitions of whole episodes that are looked at
_BLOCKS = 6  # parts of a log that names no cohorts
_LEAST = 20  # episodes that can be shuffled, or are left when a cohort is left out
_NEAR = 200  # transitions whose surprises are compared
_STRONGEST = 100.0  # strength of a hidden cause beyond which it does not matter
_WEAK = 1.5  # one that is no stronger than this is to be expected


@dataclass(frozen=True)
class StressTest:
    """One test.

    Attributes:
        name: placebo reward, shuffled actions, left out, hidden confounder.
        fired: it speaks against the answer; None where it was left out.
        text: for a person.
        number: largest false difference, largest move, or the strength that turns the decision.
    """

    name: str
    fired: bool | None
    text: str
    number: float | None = None


@dataclass(frozen=True)
class StressResult:
    """All tests, and the one verdict: distrust where something is found in nothing, caution where the
    decision rests on one cohort or on a weak hidden cause.
    """

    tests: tuple[StressTest, ...]
    estimate: Estimate
    difference: Difference | None

    @property
    def verdict(self) -> Verdict:
        """The worst of what fired; caution where everything had to be left out."""
        grave = ("placebo reward", "shuffled actions")
        found: list[Verdict] = [
            "distrust" if one.fired and one.name in grave else "caution" if one.fired else "trust"
            for one in self.tests
            if one.fired is not None
        ]
        return worst(found)


@dataclass(frozen=True, eq=False)
class _Asker:
    """The same question about a log that was changed."""

    policy: AnyPolicy
    method: Estimator
    discount: float
    horizon: int | None
    seed: int

    def question(self, dataset: Dataset) -> Question:
        return Question.of(
            dataset, {"new": self.policy}, discount=self.discount, horizon=self.horizon, seed=self.seed
        )

    def __call__(self, dataset: Dataset) -> tuple[Estimate, Difference | None]:
        question = self.question(dataset)
        answer = ask(self.method, question, Run(show=silent))["new"]
        logged = logged_value(dataset, discount=self.discount, horizon=self.horizon)
        if logged is None or not_alike(question):
            return answer, None
        return answer, decided(difference_to(answer, logged), answer, logged, 1)


def stress(
    dataset: Dataset | str | Path,
    policy: Any,  # noqa: ANN401 - a policy, a callable, a module or a path
    *,
    discount: float,
    method: Estimator | str | None = None,
    horizon: int | None = None,
    cohorts: Sequence[Any] | None = None,
    memoryless: bool = False,
    seed: int = 0,
) -> StressResult:
    """Stress tests of a policy's answer and of the decision against the log.

    Args:
        dataset: a `Dataset`, or a path.
        policy: the new policy, as in `evaluate`.
        discount, horizon, seed: as in `evaluate`.
        method: None takes `Consensus`, since each test asks anew.
        cohorts: of each episode, e.g. its month; None takes the log's own cohorts, else the labels of the
            logging policies, else parts of the log in its order.
        memoryless: hidden causes, if there are any, are drawn anew at every step; so the strength of one that
            would turn the decision can be said. For bandits it always can.
    """
    data = dataset if isinstance(dataset, Dataset) else load_dataset(dataset)
    new = resolve_policy(data, load_policy(policy, num_actions=data.num_actions))
    stop_at_errors(examine(data, {"new": new}))
    if cohorts is not None and len(cohorts) != data.num_episodes:
        raise BadInput(
            f"cohorts has {len(cohorts)} labels; expected one for each of {data.num_episodes} episodes."
        )
    if cohorts is not None:
        data = replace(data, cohort=np.asarray([str(one) for one in cohorts]))
    if len(data) > _ROWS:
        data = some_episodes(data, _ROWS, seed).dataset
    asker = _Asker(new, Consensus() if method is None else method_of(method), discount, horizon, seed)
    answer, difference = asker(data)
    generator = np.random.default_rng([seed, salts.STRESS])
    tests = (
        _placebo(asker, data, difference, generator),
        _shuffled(asker, data, difference, generator),
        _left_out(asker, data, answer, difference),
        _confounder(asker, data, difference, memoryless),
    )
    return StressResult(tests, answer, difference)


_WITHHELD = (
    "left out: the log's own returns cannot be compared with the value (ask for a horizon that they cover)"
)


def _placebo(
    asker: _Asker, data: Dataset, base: Difference | None, generator: np.random.Generator
) -> StressTest:
    name = "placebo reward"
    if base is None:
        return StressTest(name, None, f"Placebo reward, {_WITHHELD}.")
    if data.terminated.any() and len(np.unique(data.lengths)) > 1:
        return StressTest(
            name,
            None,
            "Placebo reward, left out: episodes end early, and a policy may earn by lasting longer.",
        )
    rewards, dealt = placebo_rewards(data, generator)
    if dealt < _LEAST:
        return StressTest(
            name, None, f"Placebo reward, left out: only {dealt} episodes are as long as another one."
        )
    return _nothing_there(
        name, *asker(replace(data, rewards=rewards)), "rewards that no action had a part in"
    )


def placebo_rewards(data: Dataset, generator: np.random.Generator) -> tuple[FloatArray, int]:
    """Rewards dealt anew between episodes of equal length, less what that step paid on average; and how many
    episodes had another one to deal with.
    """
    step = np.arange(len(data)) - data.offsets[:-1][data.episode_of]
    means = np.bincount(step, weights=data.rewards) / np.bincount(step)
    rewards = data.rewards - means[step] + float(data.rewards.mean())
    result, dealt = rewards.copy(), 0
    for length in np.unique(data.lengths):
        own = np.flatnonzero(data.lengths == length)
        dealt += len(own) if len(own) > 1 else 0
        places = data.offsets[:-1][own][:, None] + np.arange(length)
        result[places] = rewards[places[generator.permutation(len(own))]]
    return result, dealt


def _shuffled(
    asker: _Asker, data: Dataset, base: Difference | None, generator: np.random.Generator
) -> StressTest:
    if base is None:
        return StressTest("shuffled actions", None, f"Shuffled actions, {_WITHHELD}.")
    actions = data.actions[generator.permutation(len(data))]
    found = asker(replace(data, actions=actions, log_prob=None))
    return _nothing_there("shuffled actions", *found, "actions that had no part in what followed")


def _nothing_there(name: str, answer: Estimate, found: Difference | None, what: str) -> StressTest:
    if found is None:
        return StressTest(name, None, f"{name.capitalize()}, {_WITHHELD}.")
    scale = max(abs(answer.value), 0.0 if answer.budget is None else answer.budget.scale)
    beyond = 0.0 if found.interval is None else found.interval.high - found.interval.low
    apart = abs(found.value) > max(TRUST_WIDTH * scale, beyond)
    fired = found.decision in ("better", "worse") or apart or not np.isfinite(found.value)
    told = f"the method still finds {found.value:+.4g} to the log" if fired else "the method finds nothing"
    return StressTest(
        name, fired, f"With {what}, {told}, as it should{' not' if fired else ''}.", found.value
    )


def _left_out(asker: _Asker, data: Dataset, answer: Estimate, base: Difference | None) -> StressTest:
    name = "left out"
    label = data.behaviour if data.cohort is None else data.cohort
    if label is None or len(np.unique(label)) < 2:
        label = np.array(
            [f"part {k + 1}" for k in np.arange(data.num_episodes) * _BLOCKS // data.num_episodes]
        )
    found = {}
    for one in np.unique(label):
        keep = np.flatnonzero(label != one)
        if len(keep) >= _LEAST:
            found[str(one)] = asker(data.select(keep))
    if not found:
        return StressTest(name, None, f"Cohorts left out: not done, with fewer than {_LEAST} episodes left.")
    moves = {one: _move(answer, base, *other) for one, other in found.items()}
    most = max(moves, key=lambda one: abs(moves[one][0]))
    turned = [one for one, (_, turns) in moves.items() if turns]
    what = "the value" if base is None else "the difference to the log"
    text = (
        f"Without {', '.join(turned)} the answer is another one: {what} moves by {moves[turned[0]][0]:+.4g}."
        if turned
        else f"No cohort decides alone: without {most}, {what} moves most, by {moves[most][0]:+.4g}."
    )
    return StressTest(name, bool(turned), text, moves[most][0])


def _move(
    answer: Estimate, base: Difference | None, without: Estimate, difference: Difference | None
) -> tuple[float, bool]:
    """By how much the answer moves, and whether it is another one: outside the honest interval, or a decision
    that is lost with more than half of the difference, or reversed.
    """
    if base is None or difference is None:
        honest = None if answer.budget is None else answer.budget.honest
        return without.value - answer.value, honest is not None and without.value not in honest
    outside = base.honest is not None and difference.value not in base.honest
    lost = base.decision in ("better", "worse") and difference.decision != base.decision
    return difference.value - base.value, outside or (lost and difference.value / base.value < 0.5)


def _confounder(asker: _Asker, data: Dataset, base: Difference | None, memoryless: bool) -> StressTest:
    name = "hidden confounder"
    bandit = bool((data.lengths == 1).all()) or asker.horizon == 1
    if not (bandit or memoryless):
        return StressTest(
            name,
            None,
            "Hidden confounder, left out: its strength can be said for bandits, and for sequences whose "
            "hidden causes are drawn anew at each step (memoryless=True, --memoryless), which you must know.",
        )
    if base is None or base.honest is None or base.decision not in ("better", "worse"):
        return StressTest(name, None, "Hidden confounder, left out: there is no decision that it could turn.")
    sign = 1.0 if base.decision == "better" else -1.0
    reserve = base.honest.low if sign > 0.0 else -base.honest.high
    strength = turning_strength(asker.question(data), sign, reserve)
    drawn = "" if bandit else ", drawn anew at every step,"
    text = (
        f"A hidden cause{drawn} that changes the odds of the logged action by a factor of {strength:.2f} "
        "could turn the decision; a weaker one could not."
        if strength < _STRONGEST
        else f"No hidden cause{drawn} could turn the decision, however strong."
    )
    return StressTest(name, strength < _WEAK, text, strength)


def turning_strength(question: Question, sign: float, reserve: float) -> float:
    """Smallest Gamma at which a hidden cause may move the value by `reserve`, downwards where `sign` is 1."""
    inputs = inputs_of(question, question.targets["new"])
    generator = np.random.default_rng([question.seed, salts.STRESS, 1])
    weights = chain_view(inputs, question.discount, question.horizon)[0].weights
    surprise = _surprises(question, generator) * sign
    known = question.dataset.log_prob
    taken = np.zeros(len(weights))
    if known is not None and question.dataset.discrete:
        taken = np.exp(np.nan_to_num(known[inputs.transitions], nan=-np.inf))
    near = cKDTree(inputs.here).query(inputs.here, k=min(_NEAR, max(len(weights) // 10, 2)))[1]
    ordered = np.sort(surprise[near], axis=1)

    def moved(strength: float) -> float:
        share = 1.0 / (1.0 + strength)
        count = max(round(share * ordered.shape[1]), 1)
        tail = ordered.mean(axis=1) - ordered[:, :count].mean(axis=1)
        return float(weights @ ((1.0 - taken) * (1.0 - 1.0 / strength) * tail))

    low, high = 1.0, _STRONGEST
    if moved(high) < reserve:
        return _STRONGEST
    while high / low > 1.005:
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if moved(middle) < reserve else (low, middle)
    return high


def _surprises(question: Question, generator: np.random.Generator) -> NDArray[np.float64]:
    """What each transition paid and led to beyond what was expected of it, r + discount V(s') - Q(s, a)."""
    inputs = inputs_of(question, question.targets["new"])
    # A horizon's values are near those of a long future; of one step, nothing follows.
    discount = 0.0 if question.horizon == 1 else min(question.discount, 0.999)
    views = linear_views(inputs, discount, None, generator)
    td = [view.td for view in views if view.td is not None and np.isfinite(view.td).all()]
    return np.asarray(np.median(np.stack(td), axis=0))
