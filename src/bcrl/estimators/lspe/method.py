"""Least squares policy evaluation on a representation: the paper on one screen.

    1. learn phi on D1                                               (Chang et al. 2022, Algorithm 2, line 1)
    2. theta_k = argmin_theta E_D2 (theta^T phi(s, a) - r - discount theta_{k-1}^T phi(s', pi))^2   (Alg. 1)
    3. V(s) = theta^T phi(s, pi); value = mean over the start states

The paper splits the data in two; its code uses all of it twice. `split` offers both, and cross-fitting, in
which every half is evaluated with features learned on the other. Two trainings of phi give two values, a
difference that theta's sandwich error does not include, and some trainings diverge. So of `repeats` trainings
the one with the median value is kept, and their spread is part of the interval. Where most diverge, what
linear/fallback.py found for them answers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from bcrl import salts
from bcrl.data.dataset import Dataset
from bcrl.data.select import Part, Split, folds
from bcrl.errors import BadInput
from bcrl.estimate import Estimate, FloatArray, short_call
from bcrl.estimators.lspe.answer import Training, combine, self_check
from bcrl.estimators.lspe.fit import PartAnswer, PolicyFit, moments_by_block
from bcrl.estimators.lspe.steady import steadied
from bcrl.linear import Moments, lspe
from bcrl.linear.fallback import Fallback
from bcrl.linear.lspe import LSPESolution, Solver
from bcrl.networks import sees_pixels
from bcrl.options import Checked, Count, NotNegative, Positive
from bcrl.policies.policy import TargetActions
from bcrl.question import Question
from bcrl.representations.bellman_complete import BellmanComplete
from bcrl.representations.features import Encoded, Fitted, Representation, expected_features
from bcrl.representations.fixed import GivenFeatures, RandomFeatures
from bcrl.representations.stored import SavedFeatures
from bcrl.training import Crew, Pace, Run

_MOST_BYTES = 2**28  # of moments that are kept; beyond it they are summed again where they are asked for


@dataclass(frozen=True)
class LSPE(Checked):
    """Least squares policy evaluation.

    Attributes:
        representation: how phi(s, a) is made.
        split: "none" learns and evaluates on all data; "half" learns on one half of the units and evaluates
            on the other, as the theory asks; "cross" does so both ways round and averages.
        repeats: trainings of the representation from different seeds, an odd number, of which the one with
            the median value is kept; None: 3 where it is learned and observations are vectors, else 1.
        solver: how each regression is solved: "cholesky" with a small ridge, a pseudo-inverse, the released
            code's "pinv32", or "ball": ||theta|| <= radius, as in the paper.
        ridge: in units of the mean eigenvalue of Sigma.
        radius: W of the ball.
        fallback: "auto": where the iteration blows up, its fixed point, the paper's ball or a ridge answers,
            whichever is plausible first, and the estimate says which; None: it is left to blow up.
    """

    representation: Representation = field(default_factory=BellmanComplete)
    split: Split = "none"
    repeats: Count | None = None
    solver: Solver = "cholesky"
    ridge: NotNegative = 1e-8
    radius: Positive | None = None
    fallback: Literal["auto"] | None = "auto"
    least_transitions: ClassVar[int] = 20
    shares_work: ClassVar[bool] = True  # gives its trainings and passes to the crew itself

    __repr__ = short_call

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.repeats is not None and self.repeats % 2 == 0:
            raise BadInput(
                f"LSPE: repeats={self.repeats}; expected an odd number, so that one training is the median."
            )
        if (self.solver == "ball") != (self.radius is not None):
            raise BadInput(
                f"LSPE: solver={self.solver!r} with radius={self.radius}; the radius W belongs to "
                "solver='ball', which needs one."
            )

    def estimate(self, question: Question, run: Run) -> dict[str, Estimate]:
        """Evaluate every policy; each training of the representation serves all of them."""
        parts = folds(question.dataset, self.split, question.seed)
        learned = None if run.crew is None else self._learned_by(run.crew, question, parts, run)
        trainings = [
            self._train(question, parts, repeat, run, learned)
            for repeat in range(self._repeats(question.dataset))
        ]
        return {
            name: combine(repr(self), [training[name] for training in trainings], question)
            for name in question.targets
        }

    def _learned_by(
        self, crew: Crew, question: Question, parts: list[tuple[Part, Part]], run: Run
    ) -> list[Fitted] | None:
        """Every training's features, made by other processes; None where one training is for one of them."""
        total = len(parts) * self._repeats(question.dataset)
        if total == crew.per_training == 1:
            return None
        shared = [
            (learn.dataset, [target.actions.take(learn.rows) for target in question.targets.values()])
            for learn, _ in parts
        ]
        items = [
            (number % len(parts), _seed(question.seed, number), run.within(f"fold{number}").sent())
            for number in range(total)
        ]
        work = partial(_learn, self.representation, question.discount)
        if crew.per_training > 1:
            return [crew.together(work, item, [shared]) for item in items]
        pace = Pace(run, "trainings", total)
        return crew.each(work, items, [shared], pace.advance)

    def _train(
        self,
        question: Question,
        parts: list[tuple[Part, Part]],
        repeat: int,
        run: Run,
        learned: list[Fitted] | None,
    ) -> dict[str, Training]:
        """One training: for each fold learn phi on D1 (Algorithm 2), then evaluate every policy on D2."""
        total = len(parts) * self._repeats(question.dataset)
        answers: dict[str, list[PartAnswer]] = {name: [] for name in question.targets}
        seen: list[Encoded] = []
        for number, (learn, judge) in enumerate(parts, start=repeat * len(parts)):
            learning = run.within(f"fold{number}")
            phi = (
                learned[number]
                if learned is not None
                else self.representation.fit(
                    learn.dataset,
                    [target.actions.take(learn.rows) for target in question.targets.values()],
                    discount=question.discount,
                    seed=_seed(question.seed, number),
                    run=learning if total == 1 else learning.titled(f"training {number + 1} of {total}"),
                )
            )
            encoded = Encoded.of(judge.dataset, phi)
            seen.append(encoded)
            keep = total * len(question.targets) * _bytes_of_blocks(phi.dim) < _MOST_BYTES
            for name, fit in self._evaluate(question, encoded, judge.rows, run, keep=keep):
                answers[name].append(fit.answer(later=total > len(parts)))

        @cache
        def checked() -> dict[str, float]:
            found = (self_check(encoded, question, self.ridge) for encoded in seen)
            return next((numbers for numbers in found if numbers), {})

        return {name: Training(each, checked) for name, each in answers.items()}

    def _evaluate(
        self,
        question: Question,
        encoded: Encoded,
        rows: NDArray[np.int64] | slice,
        run: Run,
        *,
        keep: bool,
    ) -> Iterator[tuple[str, PolicyFit]]:
        """LSPE of every policy (Algorithm 1) on the part of the data that has these observation rows."""
        at_once = max(1, _MOST_BYTES // _bytes_of_blocks(encoded.fitted.dim))
        starts, all_names = encoded.starts(question.starts), list(question.targets)
        for first in range(0, len(all_names), at_once):
            names = all_names[first : first + at_once]
            policies = [question.targets[name].actions.take(rows) for name in names]
            stage = f"LSPE {names[0]}" if len(names) == 1 else f"LSPE, {len(names)} policies"
            pace = Pace(run, stage, len(encoded.dataset))
            of_all = moments_by_block(encoded, policies, pace.advance, run.crew)
            for name, actions, blocks in zip(names, policies, of_all, strict=True):
                target = question.targets[name]
                start_features = expected_features(encoded.fitted, starts, target.start_actions)
                solution, fallback = self._solve(question, encoded, actions, start_features, blocks)
                again = partial(_kept, blocks) if keep else partial(_summed_again, encoded, actions)
                yield (
                    name,
                    PolicyFit(target, encoded, actions, start_features, again, solution, fallback, run.crew),
                )

    def _solve(
        self,
        question: Question,
        encoded: Encoded,
        actions: TargetActions,
        start_features: FloatArray,
        blocks: list[Moments],
    ) -> tuple[LSPESolution, Fallback | None]:
        """LSPE of one policy, or what stands in for it."""
        solution = lspe(
            sum(blocks[1:], start=blocks[0]),
            question.discount,
            start_features=start_features.mean(axis=0),
            horizon=question.horizon,
            solver=self.solver,
            ridge=self.ridge,
            radius=self.radius,
        )
        if self.fallback == "auto" and solution.blows_up:
            return steadied(solution, encoded, actions, start_features, blocks)
        return solution, None

    def _repeats(self, dataset: Dataset) -> int:
        if self.repeats is not None:
            return self.repeats
        fixed = isinstance(self.representation, (RandomFeatures, GivenFeatures, SavedFeatures))
        once = fixed or getattr(self.representation, "published", False)
        return 1 if once or sees_pixels(dataset, getattr(self.representation, "reads", None)) else 3


def _bytes_of_blocks(dim: int) -> int:
    """Of one policy's moments: 32 blocks of three matrices."""
    return 768 * dim**2


def _kept(blocks: list[Moments]) -> list[Moments]:
    return blocks


def _summed_again(encoded: Encoded, actions: TargetActions) -> list[Moments]:
    return moments_by_block(encoded, [actions])[0]


def _learn(
    representation: Representation,
    discount: float,
    item: tuple[int, int, Run],
    parts: list[tuple[Dataset, list[TargetActions]]],
) -> Fitted:
    """One training, wherever it runs."""
    part, seed, run = item
    dataset, actions = parts[part]
    return representation.fit(dataset, actions, discount=discount, seed=seed, run=run)


def _seed(seed: int, number: int) -> int:
    """The training's own seed: the first uses the user's; later ones share no seed with another user seed."""
    return seed if number == 0 else int(np.random.default_rng([seed, number, salts.TRAINING]).integers(2**31))
