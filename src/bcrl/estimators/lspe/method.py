"""Least squares policy evaluation on a representation: the paper on one screen.

    1. learn phi on D1                                    (Chang et al. 2022, Algorithm 2, line 1)
    2. theta_k = argmin_theta E_D2 (theta^T phi(s, a) - r - discount theta_{k-1}^T phi(s', pi))^2     (Algorithm 1)
    3. V(s) = theta^T phi(s, pi); value = mean over the start states

The paper splits the data in two; its code uses all of it twice. `split` offers both, and cross-fitting, in which every
half is evaluated with features learned on the other. Two trainings of phi differ by luck, which no sandwich of theta sees,
and some go astray: of `repeats` trainings the one with the median value is kept, and their spread enters the interval.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Dataset
from bcrl.data.starts import Starts
from bcrl.errors import BadInput
from bcrl.estimate import Estimate
from bcrl.estimators.lspe.answer import Training, combine
from bcrl.estimators.lspe.diagnostics import Question, self_check
from bcrl.estimators.lspe.fit import LinearFit, fit_policy
from bcrl.estimators.lspe.value import START_SAMPLES
from bcrl.linear.lspe import Solver
from bcrl.networks import sees_pixels
from bcrl.policies.policy import AnyPolicy, TargetActions, actions_at, target_actions
from bcrl.printing import short_call
from bcrl.representations.bellman_complete import BellmanComplete
from bcrl.representations.encoded import Encoded
from bcrl.representations.features import Representation
from bcrl.representations.fixed import GivenFeatures, RandomFeatures
from bcrl.representations.stored import SavedFeatures
from bcrl.training import Pace, Run

Split = Literal["none", "half", "cross"]


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
        num_samples: actions drawn per observation from a stochastic policy of continuous actions.
    """

    representation: Representation = field(default_factory=BellmanComplete)
    split: Split = "none"
    repeats: int | None = None
    solver: Solver = "cholesky"
    ridge: float = 1e-8
    radius: float | None = None
    num_samples: int = 8

    __repr__ = short_call

    def estimate(
        self,
        dataset: Dataset,
        policies: Mapping[str, AnyPolicy],
        *,
        discount: float,
        horizon: int | None,
        starts: Starts,
        seed: int,
        run: Run,
    ) -> dict[str, Estimate]:
        """Evaluate every policy; each training of the representation serves all of them."""
        repeats = self._repeats(dataset)
        targets = {
            name: target_actions(dataset, policy, num_samples=self.num_samples, seed=seed)
            for name, policy in policies.items()
        }
        begins = {name: _begin(dataset, policy, starts, seed) for name, policy in policies.items()}
        question = Question(discount, horizon, seed, self.solver, self.ridge, self.radius)
        trainings: dict[str, list[Training]] = {name: [] for name in policies}
        folds = _folds(dataset, self.split, seed)
        rounds = len(folds) * repeats
        for repeat in range(repeats):
            fits: dict[str, list[LinearFit]] = {name: [] for name in policies}
            honesty: dict[str, float] = {}
            for number, (learn, judge) in enumerate(folds, start=repeat * len(folds)):
                room = run.within(f"fold{number}")
                fitted = self.representation.fit(
                    _part(dataset, learn),
                    [_rows_of(dataset, learn, target) for target in targets.values()],
                    discount=discount,
                    seed=_seed(seed, number),
                    run=room if rounds == 1 else room.titled(f"training {number + 1} of {rounds}"),
                )
                encoded = Encoded.of(_part(dataset, judge), fitted)
                first = encoded.starts(starts)
                honesty = honesty or self_check(encoded, discount, horizon, self.ridge)
                for name, policy in policies.items():
                    target = _rows_of(dataset, judge, targets[name])
                    pace = Pace(run, f"LSPE {name}", len(encoded.dataset))
                    fits[name].append(
                        fit_policy(question, encoded, target, policy, first, begins[name], pace)
                    )
            for name, parts in fits.items():
                trainings[name].append(Training(parts, honesty))
        units = int(dataset.units.max()) + 1
        return {
            name: combine(repr(self), found, starts, discount, horizon, units)
            for name, found in trainings.items()
        }

    def _repeats(self, dataset: Dataset) -> int:
        if self.repeats is not None and (self.repeats < 1 or self.repeats % 2 == 0):
            raise BadInput(f"repeats must be odd, so that one training is in the middle; got {self.repeats}.")
        if self.repeats is not None:
            return self.repeats
        fixed = isinstance(self.representation, (RandomFeatures, GivenFeatures, SavedFeatures))
        return 1 if fixed or sees_pixels(dataset, getattr(self.representation, "reads", None)) else 3


def _begin(dataset: Dataset, policy: AnyPolicy, starts: Starts, seed: int) -> TargetActions:
    """The policy's actions at the start states, as `LinearValue` draws them too."""
    generator = np.random.default_rng([seed, 0x57])
    return actions_at(dataset, policy, starts.observations, num_samples=START_SAMPLES, generator=generator)


def _folds(
    dataset: Dataset, split: Split, seed: int
) -> list[tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]]:
    """Episodes to learn on and to evaluate on, one pair per fold; None stands for all."""
    if split == "none":
        return [(None, None)]
    count = int(dataset.units.max()) + 1
    if count < 4:
        raise BadInput(
            f"split={split!r} needs at least 4 episodes or clusters; got {count}. Use split='none'."
        )
    order = np.random.default_rng([seed, 0xF0]).permutation(count)
    first = np.isin(dataset.units, order[: count // 2])
    left, right = np.flatnonzero(first), np.flatnonzero(~first)
    return [(left, right)] if split == "half" else [(left, right), (right, left)]


def _seed(seed: int, number: int) -> int:
    """The training's own seed: the first takes the user's, so that other seeds' trainings are never drawn again."""
    return seed if number == 0 else int(np.random.default_rng([seed, number, 0xE5]).integers(2**31))


def _part(dataset: Dataset, episodes: NDArray[np.int64] | None) -> Dataset:
    return dataset if episodes is None else dataset.select(episodes)


def _rows_of(dataset: Dataset, episodes: NDArray[np.int64] | None, target: TargetActions) -> TargetActions:
    """The target's actions on the observation rows of these episodes."""
    if episodes is None:
        return target
    rows = np.concatenate(
        [np.arange(dataset.offsets[e] + e, dataset.offsets[e + 1] + e + 1) for e in episodes]
    )
    return target.take(rows)
