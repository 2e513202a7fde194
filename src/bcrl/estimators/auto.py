"""Auto, the default: the quick answer, and learned features where it is not sure enough.

    1. Consensus answers in seconds; its honest interval says how far that may be off
    2. policies with a narrow interval are done: trust
    3. for the others BCRL learns features, in one training for all of them, unless what widens the interval
       is beyond any method: actions and places that the log has not seen, or chance alone
    4. of both answers the one with the narrower honest interval stays

Of pixels nothing quick can be said, so BCRL answers at once.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from bcrl.estimate import DISTRUST_WIDTH, Estimate, short_call
from bcrl.estimators.consensus.method import Consensus
from bcrl.inference.budget import with_budgets
from bcrl.options import Checked
from bcrl.question import Question
from bcrl.training import Run

# What other features could make smaller.
_OF_THE_METHOD = ("Bellman error", "other views")


class Learned(Protocol):
    """A method that takes longer and knows more."""

    def estimate(self, question: Question, run: Run) -> dict[str, Estimate]: ...


@dataclass(frozen=True)
class Auto(Checked):
    """Consensus first, LSPE on learned features where that is not sure enough.

    An answer carries the text of the method that gave it.

    Attributes:
        learned: what is asked where the consensus is not sure enough; None: `LSPE()`.
    """

    learned: Learned | None = None
    least_transitions: ClassVar[int] = 20
    shares_work: ClassVar[bool] = True  # LSPE gives its trainings and passes to the crew itself

    __repr__ = short_call

    def estimate(self, question: Question, run: Run) -> dict[str, Estimate]:
        """Evaluate every policy; those that need learned features share one training."""
        quick: dict[str, Estimate] = {}
        if not question.dataset.pixel_keys and len(question.dataset) >= Consensus.least_transitions:
            quick = _budgeted(Consensus().estimate(question, run), question)
        left = {name: target for name, target in question.targets.items() if may_learn_more(quick.get(name))}
        if not left:
            return quick
        asked = dataclasses.replace(question, targets=left)
        learned = self._learned().estimate(asked, run.within("learned"))
        if quick:
            learned = _budgeted(learned, asked)
        return {name: narrower(quick.get(name), learned.get(name)) for name in question.targets}

    def _learned(self) -> Learned:
        from bcrl.estimators.lspe.method import LSPE

        return self.learned or LSPE()


def _budgeted(answers: Mapping[str, Estimate], question: Question) -> dict[str, Estimate]:
    # The views are made again for a learned answer, in a second of its ninety: those of a hundred policies
    # would fill the memory until then.
    found = {}
    for name, answer in answers.items():
        (found[name],) = with_budgets({"": answer}, question, question.targets[name]).values()
    return found


def may_learn_more(answer: Estimate | None) -> bool:
    """Whether learned features may say more: the interval is not narrow, and could be."""
    if answer is None or answer.budget is None:
        return True
    own = sum(entry.amount for entry in answer.budget.entries if entry.name in _OF_THE_METHOD)
    size = max(abs(answer.value), answer.budget.scale)
    narrow = answer.budget.verdict(answer.value) == "trust"
    return not narrow and answer.budget.half - own <= DISTRUST_WIDTH * size


def narrower(quick: Estimate | None, learned: Estimate | None) -> Estimate:
    """The answer with the narrower honest interval; the learned one where neither has any."""
    if quick is None or learned is None:
        answer = learned if quick is None else quick
        assert answer is not None
        return answer
    first, second = _width(quick), _width(learned)
    return quick if first < second else learned


def _width(answer: Estimate) -> float:
    return float("inf") if answer.budget is None else answer.budget.width(answer.value)
