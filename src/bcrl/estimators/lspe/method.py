"""Least squares policy evaluation on a representation: the paper on one screen.

    1. learn phi on D1                                    (Chang et al. 2022, Algorithm 2, line 1)
    2. theta_k = argmin_theta E_D2 (theta^T phi(s, a) - r - discount theta_{k-1}^T phi(s', pi))^2     (Algorithm 1)
    3. V(s) = theta^T phi(s, pi); value = mean over the start states

The paper splits the data in two; its code uses all of it twice. `split` offers both, and cross-fitting, in which every
half is evaluated with features learned on the other. Two trainings of phi differ by luck, which no sandwich of theta sees,
and some go astray: of `repeats` trainings the one with the median value is kept, and their spread enters the interval.
"""

from dataclasses import dataclass, field

import numpy as np

from bcrl import salts
from bcrl.data.dataset import Dataset
from bcrl.data.select import Split, folds
from bcrl.errors import BadInput
from bcrl.estimate import Estimate
from bcrl.estimators.lspe.answer import Training, combine
from bcrl.estimators.lspe.diagnostics import Solving, self_check
from bcrl.estimators.lspe.fit import LinearFit, fit_policy
from bcrl.linear.lspe import Solver
from bcrl.networks import sees_pixels
from bcrl.printing import short_call
from bcrl.question import Question
from bcrl.representations.bellman_complete import BellmanComplete
from bcrl.representations.features import Encoded, Representation
from bcrl.representations.fixed import GivenFeatures, RandomFeatures
from bcrl.representations.stored import SavedFeatures
from bcrl.training import Pace, Run


@dataclass(frozen=True)
class LSPE:
    """Least squares policy evaluation.

    Attributes:
        representation: how phi(s, a) is made.
        split: "none" learns and evaluates on all data; "half" learns on one half of the units and evaluates on the
            other, as the theory asks; "cross" does so both ways round and averages.
        repeats: trainings of the representation from different seeds, an odd number, of which the one with the median value
            is kept; None: 3 where it is learned and observations are vectors, else 1.
        solver: how each regression is solved: "cholesky" with a small ridge, a pseudo-inverse, the released code's
            "pinv32", or "ball": ||theta|| <= radius, as in the paper.
        ridge: in units of the mean eigenvalue of Sigma.
        radius: W of the ball.
    """

    representation: Representation = field(default_factory=BellmanComplete)
    split: Split = "none"
    repeats: int | None = None
    solver: Solver = "cholesky"
    ridge: float = 1e-8
    radius: float | None = None

    __repr__ = short_call

    def estimate(self, question: Question, run: Run) -> dict[str, Estimate]:
        """Evaluate every policy; each training of the representation serves all of them."""
        dataset, seed = question.dataset, question.seed
        repeats = self._repeats(dataset)
        solving = Solving(self.solver, self.ridge, self.radius)
        trainings: dict[str, list[Training]] = {name: [] for name in question.targets}
        parts = folds(dataset, self.split, seed)
        rounds = len(parts) * repeats
        for repeat in range(repeats):
            fits: dict[str, list[LinearFit]] = {name: [] for name in question.targets}
            self_checked: dict[str, float] = {}
            for number, (learn, judge) in enumerate(parts, start=repeat * len(parts)):
                fold_run = run.within(f"fold{number}")
                fitted = self.representation.fit(
                    learn.dataset,
                    [target.actions.take(learn.rows) for target in question.targets.values()],
                    discount=question.discount,
                    seed=_seed(seed, number),
                    run=fold_run if rounds == 1 else fold_run.titled(f"training {number + 1} of {rounds}"),
                )
                encoded = Encoded.of(judge.dataset, fitted)
                first = encoded.starts(question.starts)
                self_checked = self_checked or self_check(encoded, question, self.ridge)
                for name, target in question.targets.items():
                    actions = target.actions.take(judge.rows)
                    pace = Pace(run, f"LSPE {name}", len(encoded.dataset))
                    fits[name].append(fit_policy(question, solving, encoded, target, actions, first, pace))
            for name, each in fits.items():
                trainings[name].append(Training(each, self_checked))
        return {name: combine(repr(self), found, question) for name, found in trainings.items()}

    def _repeats(self, dataset: Dataset) -> int:
        if self.repeats is not None and (self.repeats < 1 or self.repeats % 2 == 0):
            raise BadInput(f"repeats must be odd, so that one training is in the middle; got {self.repeats}.")
        if self.repeats is not None:
            return self.repeats
        fixed = isinstance(self.representation, (RandomFeatures, GivenFeatures, SavedFeatures))
        return 1 if fixed or sees_pixels(dataset, getattr(self.representation, "reads", None)) else 3


def _seed(seed: int, number: int) -> int:
    """The training's own seed: the first takes the user's, so that other seeds' trainings are never drawn again."""
    return seed if number == 0 else int(np.random.default_rng([seed, number, salts.TRAINING]).integers(2**31))
