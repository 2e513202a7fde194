"""Consensus: what six quick linear views say together, each corrected by the others.

A view is LSTD with a ridge on features of its own (bcrl/inference/views/): random cosines of three widths,
features of how an action deviates from the policy's (two), quadratics; all along the directions that Q
follows. One view's Q, corrected by another's expected visits, is wrong only by the product of both errors (as
in double robustness); the value is the median over all pairs. No network is trained: seconds where BCRL takes
minutes.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from bcrl import salts
from bcrl.estimate import Check, Estimate, FloatArray, Status, short_call
from bcrl.estimators.consensus.value import ConsensusValue
from bcrl.inference.inputs import Inputs, inputs_of
from bcrl.inference.intervals import Influence, interval, start_variance, sum_by_unit
from bcrl.inference.views.linear import View, consensus, linear_views
from bcrl.options import Checked, Range
from bcrl.question import Question, Target
from bcrl.training import Pace, Run


@dataclass(frozen=True)
class Consensus(Checked):
    """The median of linear views, corrected by each other.

    Attributes:
        rows: transitions to look at, of whole episodes; more are sampled down to so many.
    """

    rows: Annotated[int, Range(100)] = 40_000
    least_transitions: ClassVar[int] = 30

    __repr__ = short_call

    def estimate(self, question: Question, run: Run) -> dict[str, Estimate]:
        """Evaluate every policy, one after the other."""
        pace = Pace(run, "views", len(question.targets))
        estimates = {}
        for name, target in question.targets.items():
            estimates[name] = self._estimate_one(question, target)
            pace.advance(1)
        return estimates

    def _estimate_one(self, question: Question, target: Target) -> Estimate:
        generator = np.random.default_rng([question.seed, salts.VIEWS, 4])
        inputs = inputs_of(question, target, self.rows)
        made = linear_views(
            inputs,
            question.discount,
            question.horizon,
            generator,
            units=question.dataset.units[inputs.episode],
        )
        views = [view for view in made if np.isfinite(view.value)]
        if not views:
            return Estimate(
                value=float("nan"),
                method=repr(self),
                discount=question.discount,
                horizon=question.horizon,
                status=Status.DIVERGED,
            )
        value = consensus(views)
        found = [_influence(question, inputs, view) for view in views]
        chosen = int(np.argsort([influence.variance for influence, _ in found])[len(found) // 2])
        influence, given = found[chosen]
        function = ConsensusValue.of(views, chosen, value, inputs, question, target)
        error, around = interval(value, influence, independent_variance=given, level=question.level)
        spread = float(np.median([abs(view.value - value) for view in views]))
        stats = {f"view {view.name}": view.value for view in views}
        return Estimate(
            value=value,
            method=repr(self),
            discount=question.discount,
            horizon=question.horizon,
            interval=around,
            standard_error=error,
            per_start=function.at(inputs.starts, inputs.start_weights),
            influence=None if given > 0.0 else influence.array,
            status=Status.CONVERGED if question.horizon is None else Status.HORIZON,
            checks=(_agreement(spread, max(abs(value), 1e-300)),),
            stats={**stats, "views_apart": spread, "trainings": 0.0, "rows": float(len(inputs.here))},
            value_function=function,
        )


def _start_values(view: View) -> FloatArray:
    assert view.per_start is not None  # linear views have them
    return view.per_start


def _influence(question: Question, inputs: Inputs, view: View) -> tuple[Influence, float]:
    """Contributions of units to one view's error, and the variance of starts that came from elsewhere."""
    assert view.linear is not None  # asked for above
    dataset, starts = question.dataset, question.starts
    episodes = dataset.num_episodes
    per_episode = np.bincount(inputs.episode, weights=view.linear.parts, minlength=episodes).astype(
        np.float64
    )
    by_unit = sum_by_unit(per_episode, dataset.units, question.num_units)
    values = _start_values(view)
    if starts.unit is None or len(starts.unit) != len(values):
        return Influence(by_unit), start_variance(values)
    off = (values - values.mean()) / len(values)
    return Influence(by_unit + sum_by_unit(off, starts.unit, question.num_units)), 0.0


def _agreement(spread: float, size: float) -> Check:
    share = spread / size
    verdict = "trust" if share <= 0.05 else "caution" if share <= 0.15 else "distrust"
    meaning = f"Half of the views lie within {share:.1%} of the value."
    return Check("views agree", share, 0.05, verdict, meaning)  # type: ignore[arg-type]
