"""Anchored evaluation: the logging policy's own value, plus what the policy does better along its own way.

    V_pi = V_b + 1 / (1 - discount) E_{s ~ d_pi}[A_b(s, pi)],    A_b = Q_b(s, pi) - E_{a ~ b} Q_b(s, a)

the performance difference lemma (Kakade and Langford, 2002). V_b is the log's mean return and Q_b a
regression of logged returns-to-go (anchor.py): neither takes an off-policy step. Only d_pi, the discounted
occupancy of the policy from the same starts, does (occupancy.py), and its errors multiply A_b alone, not
the whole value. What one-step methods lose is the effect of actions that shows only many steps later; the
log's own returns hold it.

A log of several policies, told apart by `behaviour`, has an anchor for each, and the answers are averaged:
a good policy's action looks good because of who acts later, so returns of several policies must not be
mixed. Where they cannot be told apart, Q_b is bootstrapped step by step, which makes it the Q of their
mixture.
"""

from dataclasses import dataclass, field
from typing import Annotated

from bcrl.errors import BadInput
from bcrl.estimate import Estimate, short_call
from bcrl.estimators.anchored.anchor import Anchor, read
from bcrl.estimators.anchored.answer import Answer, combine
from bcrl.estimators.anchored.occupancy import occupancy
from bcrl.estimators.anchored.returns import loggers, state_features, unit_folds
from bcrl.estimators.lspe.answer import self_check
from bcrl.options import Checked, Positive, Range, Share
from bcrl.question import Question, Target
from bcrl.representations.features import Encoded, Representation, constant_feature, expected_features
from bcrl.representations.fixed import RandomFeatures
from bcrl.training import Pace, Run

# The self-check's ridge, on policy.
_RIDGE = 1e-5


@dataclass(frozen=True)
class Anchored(Checked):
    """Anchored evaluation.

    Attributes:
        representation: how phi(s, a) is made, for Q_b and for the occupancy.
        folds: groups of units; Q_b at a row is fitted without the row's group.
        trace: 1 regresses on logged returns; 0 on one reward and the on-policy V after it; None: what comes
            closest to held-out logged returns.
        ridge: of the occupancy, in units of the mean eigenvalue of Sigma; None: the one whose weights
            conserve flow best on held-out units.
    """

    representation: Representation = field(default_factory=RandomFeatures)
    folds: Annotated[int, Range(2)] = 4
    trace: Share | None = None
    ridge: Positive | None = None

    __repr__ = short_call

    def estimate(self, question: Question, run: Run) -> dict[str, Estimate]:
        """Evaluate every policy; features and Q_b serve all of them."""
        self._refuse(question)
        dataset = question.dataset
        phi = self.representation.fit(
            dataset,
            [target.actions for target in question.targets.values()],
            discount=question.discount,
            seed=question.seed,
            run=run.within("features"),
        )
        encoded = Encoded.of(dataset, phi)
        free = constant_feature(encoded)
        pace = Pace(run, "anchored evaluation", 1 + len(question.targets))
        states = state_features(encoded)
        anchors = [
            Anchor.of(encoded, states, logger, question.discount, self.trace, free)
            for logger in loggers(dataset, self.folds, question.seed)
        ]
        known = self_check(encoded, question, _RIDGE)
        pace.advance(1)
        estimates = {}
        for name, target in question.targets.items():
            estimates[name] = combine(
                repr(self), self._answer(question, target, encoded, anchors, free), known
            )
            pace.advance(1)
        return estimates

    def _answer(
        self, question: Question, target: Target, encoded: Encoded, anchors: list[Anchor], free: int | None
    ) -> Answer:
        """d_pi and A_b of one policy."""
        dataset = question.dataset
        fold = unit_folds(dataset, self.folds, question.seed)[dataset.units][dataset.episode_of]
        reading = read(encoded, target.actions, anchors, fold, free)
        starts = expected_features(encoded.fitted, encoded.starts(question.starts), target.start_actions)
        way = occupancy(reading.flow, question.discount, starts.mean(axis=0), free, self.ridge)
        gains = [way.value_weights(reading.cross @ each.gain.weights) for each in reading.advantages]
        return Answer(question, target, encoded, reading, way, starts, gains)

    def _refuse(self, question: Question) -> None:
        question.dataset.require_order("Anchored")
        if question.horizon is not None:
            raise BadInput(
                f"Anchored values the whole discounted future; got horizon={question.horizon}. "
                "Use LSPE, FQE or ImportanceSampling for a finite horizon."
            )
        if question.num_units < 2:
            raise BadInput(
                "Anchored fits Q_b without each row's own unit; the log has one unit, expected 2 or more."
            )
