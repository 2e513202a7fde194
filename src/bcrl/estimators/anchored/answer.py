"""From d_pi and A_b to an `Estimate`: value, each unit's part of its error, reasons to doubt it.

With theta = (Sigma - discount C)^-1 E[phi A_b] the error of V_b + x0^T theta is, to first order, a sum over
units of

    starts   G_0 - V_b at the unit's episodes, and (phi(s0, pi) - x0)^T theta
    tail     what its rows add to the on-policy V_b that closes cut records
    flow     w_i (A_b(s_i) + discount theta^T phi(s'_i, pi) - theta^T phi(s_i, a_i))
    mean     v_i (Delta_i - A_b(s_i)),     v_i = E[w | s_i], by the regression behind A_b
    Q_b      the response of the gain to Q_b, times G_i - Q_b(s_i, a_i) without the row's fold

each divided by its number of rows. Bias of ridges and features is not in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bcrl.data.dataset import Dataset
from bcrl.estimate import Check, Estimate, FloatArray, Status
from bcrl.estimators.anchored.anchor import Advantage, Reading, own_rows, pieces
from bcrl.estimators.anchored.checks import checks_of
from bcrl.estimators.anchored.occupancy import Occupancy
from bcrl.estimators.lspe.value import LinearValue
from bcrl.inference.evidence import action_support, predictable_error
from bcrl.inference.inputs import states_at, with_actions
from bcrl.inference.intervals import Influence, interval, start_variance, sum_by_unit
from bcrl.linear import td_errors
from bcrl.question import Question, Target
from bcrl.representations.features import Encoded

# Share of its gain by which an anchor's answer is taken to be off when several are averaged: the farther a
# logging policy is from the target, the more its answer rests on weights.
_DOUBT = 0.2


@dataclass(frozen=True, eq=False)
class Answer:
    """All that was found about one policy.

    Attributes:
        question, target, encoded: what was asked, about whom, of which log.
        reading: sums and advantages.
        way: the policy's occupancy.
        starts: phi(s0, pi), shape (n0, d).
        gains: theta of each anchor: theta^T phi(s, pi) is the gain over it from s on.
    """

    question: Question
    target: Target
    encoded: Encoded
    reading: Reading
    way: Occupancy
    starts: FloatArray
    gains: list[FloatArray]

    @property
    def own_starts(self) -> bool:
        """Whether the starts are those of the log's episodes."""
        return self.question.starts.unit is not None

    def base(self, number: int) -> float:
        """V_b of one anchor: its logged mean, or the mean of its V_b at starts that came from elsewhere."""
        advantage = self.reading.advantages[number]
        if self.own_starts:
            return float(advantage.anchor.returns.first.mean())
        return float((self.starts @ advantage.value.weights).mean())

    def gain(self, number: int) -> float:
        return float((self.starts @ self.gains[number]).mean())

    @cached_property
    def rows(self) -> "RowParts":
        """The second pass over the log."""
        return second_pass(self)

    def influence(self, number: int) -> FloatArray:
        """Contribution of each unit to the error of one anchor's answer, shape (units,)."""
        dataset, units = self.question.dataset, self.question.num_units
        advantage, theta = self.reading.advantages[number], self.gains[number]
        parts = np.zeros(dataset.num_episodes)
        np.add.at(parts, dataset.episode_of, self.rows.parts[number])
        anchor = advantage.anchor
        if self.own_starts:
            shift = self.starts @ theta
            parts += (shift - shift.mean()) / len(shift)
            first = anchor.returns.first
            parts[anchor.logger.episodes] += (first - first.mean()) / len(first)
            parts += anchor.returns.tail
        return sum_by_unit(parts, dataset.units, units)


@dataclass(frozen=True, eq=False)
class RowParts:
    """Of each transition, shape (N,): its part of each anchor's error, its weight, the gain's TD error."""

    parts: list[FloatArray]
    weights: FloatArray
    td: FloatArray


def second_pass(answer: Answer) -> RowParts:
    dataset, discount = answer.question.dataset, answer.question.discount
    count, weights, td = len(dataset), np.empty(len(dataset)), np.empty(len(dataset))
    parts = [np.zeros(count) for _ in answer.gains]
    responses = [_responses(answer, each) for each in answer.reading.advantages]
    for rows in pieces(answer.encoded, answer.target.actions):
        weights[rows.numbers] = rows.logged @ answer.way.weights
        for number, (advantage, theta) in enumerate(
            zip(answer.reading.advantages, answer.gains, strict=True)
        ):
            anchor = advantage.anchor
            expected = rows.here @ advantage.gain.weights
            q, ahead = rows.logged @ theta, rows.after @ theta
            delta = td_errors(expected, dataset.terminated[rows.numbers], q, ahead, discount)
            td[rows.numbers] = delta if number == 0 else td[rows.numbers]
            parts[number][rows.numbers] += weights[rows.numbers] * delta / count
            own, (state, pair) = own_rows(anchor, rows), responses[number]
            logged = rows.logged[own.piece]
            fitted = np.einsum("nd,nd->n", logged, anchor.q.without[anchor.logger.fold[own.own]])
            mean = (rows.here[own.piece] @ state) * (own.delta - expected[own.piece])
            residual = (logged @ pair) * (anchor.over[own.own] - fitted)
            parts[number][rows.numbers[own.piece]] += (mean + residual) / len(anchor.logger.rows)
            if not answer.own_starts:
                here = rows.here[own.piece]
                response = here @ advantage.value.inverse_times(answer.starts.mean(axis=0))
                off = anchor.logged[own.own] - here @ advantage.value.weights
                parts[number][rows.numbers[own.piece]] += response * off / len(anchor.logger.rows)
    return RowParts(parts, weights, td)


def _responses(answer: Answer, advantage: Advantage) -> tuple[FloatArray, FloatArray]:
    """Responses of the gain: to Delta, by phi(s, pi), and to Q_b's residual, by phi(s, a)."""
    state = advantage.gain.inverse_times(answer.reading.cross.T @ answer.way.weights)
    gram = advantage.gain.total.gram / advantage.gain.total.count
    return state, advantage.anchor.q.inverse_times((gram - advantage.cross) @ state)


def combine(method: str, answer: Answer, known: Mapping[str, float]) -> Estimate:
    """The estimate of one policy: the anchors' answers averaged, the more the less they rest on weights.

    Args:
        method: text form of the method.
        answer: what was found.
        known: the self-check's numbers.
    """
    question, units = answer.question, answer.question.num_units
    count = len(answer.gains)
    influences = np.stack([answer.influence(k) for k in range(count)])
    bases, gains = (
        np.array([answer.base(k) for k in range(count)]),
        np.array([answer.gain(k) for k in range(count)]),
    )
    share = 1.0 / (np.square(influences).sum(axis=1) + np.square(_DOUBT * gains) + 1e-300)
    share /= share.sum()
    value = float(share @ (bases + gains))
    theta = share @ np.stack(
        [
            each.value.weights + gain
            for each, gain in zip(answer.reading.advantages, answer.gains, strict=True)
        ]
    )
    per_start = answer.starts @ theta
    per_start += value - per_start.mean()
    given = 0.0 if answer.own_starts else start_variance(per_start)
    influence = Influence(share @ influences)
    error, around = interval(value, influence, independent_variance=given, level=question.level)
    stats = _stats(answer, share, bases, gains) | dict(known)
    stats |= {"variance_of_given_starts": given, "units": float(units), "trainings": 0.0}
    checks: tuple[Check, ...] = checks_of(stats, value, error, answer.target, question)
    return Estimate(
        value=value,
        method=method,
        discount=question.discount,
        interval=around,
        standard_error=error,
        per_start=per_start,
        influence=None if given > 0.0 else influence.array,
        status=Status.CONVERGED,
        checks=checks,
        curves={
            f"train/{name}": [float(x) for x in series]
            for name, series in answer.encoded.fitted.metrics.items()
        },
        stats=stats,
        value_function=LinearValue(
            fitted=answer.encoded.fitted,
            theta=theta,
            error_root=None,
            template=question.dataset.template(),
            policy=answer.target.policy,
            seed=answer.target.seed,
        ),
    )


def _stats(answer: Answer, share: FloatArray, bases: FloatArray, gains: FloatArray) -> dict[str, float]:
    dataset, rows, seed = answer.question.dataset, answer.rows, answer.target.seed
    weights = rows.weights
    by_unit = np.bincount(dataset.units[dataset.episode_of], weights=weights)
    encoded = answer.encoded
    states = states_at(dataset, encoded.at if encoded.has_codes else None)
    support = audited = learned = float("nan")
    if states.shape[1] and len(dataset) > 20:
        support = action_support(states, dataset, answer.target.actions, weights, seed=seed)
        audit = predictable_error(with_actions(states, dataset), rows.td, dataset, seed=seed)
        audited, learned = audit.error, audit.rows
    anchors = [each.anchor for each in answer.reading.advantages]
    return {
        "logged_value": float(share @ bases),
        "gain": float(share @ gains),
        "gain_first_order": float(share @ [_first_order(dataset, answer, k) for k in range(len(gains))]),
        "anchors": float(len(anchors)),
        "bootstrapped": float(any(anchor.logger.mixed for anchor in anchors)),
        "tail_share": float(share @ [anchor.returns.tail_share for anchor in anchors]),
        "q_explained": float(share @ [anchor.q.explained for anchor in anchors]),
        "q_ridge": float(share @ [anchor.q.ridge for anchor in anchors]),
        "trace": float(share @ [anchor.trace for anchor in anchors]),
        "occupancy_ridge": answer.way.ridge,
        "flow_error": answer.way.flow_error,
        "weights_mean": float(weights.mean() * (1.0 - answer.question.discount)),
        "effective_share": float(weights.sum() ** 2 / (len(weights) * np.sum(weights**2))),
        "effective_units": float(by_unit.sum() ** 2 / np.sum(by_unit**2)),
        "action_support": support,
        "predictable_td_error": audited,
        "audit_rows": learned,
        "features": float(answer.encoded.fitted.dim),
    }


def _first_order(dataset: Dataset, answer: Answer, number: int) -> float:
    """The gain if the policy visited the states of the anchor's log, each weighted by discount^t."""
    anchor = answer.reading.advantages[number].anchor
    steps = np.arange(len(dataset)) - dataset.offsets[:-1][dataset.episode_of]
    weights = np.power(answer.question.discount, steps[anchor.logger.rows]) / len(anchor.logger.episodes)
    total = 0.0
    for rows in pieces(answer.encoded, answer.target.actions):
        own = own_rows(anchor, rows)
        total += float(weights[own.own] @ own.delta)
    return total
