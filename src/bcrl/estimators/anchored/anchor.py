"""The logging policy's own Q, from its returns, and what the policy gains over it at every state.

    Q_b = argmin E_log (Q(s, a) - G)^2                             ridge regression on phi(s, a), without the row's fold
    Delta_i = Q_b(s_i, pi) - Q_b(s_i, a_i)                         one Q_b for both terms
    A_b(s) = E[Delta | s] = Q_b(s, pi) - E_{a ~ b} Q_b(s, a)       ridge regression on phi(s, pi)

The logged action enters only through its mean given the state. To leave Delta_i itself under weights of state-action
pairs is the trap: these weights prefer rows whose action already is the policy's, where Delta is 0, and the gain
vanishes. For the logged actions themselves Delta is 0 in every row, so A_b is 0 and the value is the logged mean.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bcrl.estimate import FloatArray
from bcrl.estimators.anchored.regression import Ridge, Sums, fit
from bcrl.estimators.anchored.returns import Ints, Logger, Returns, returns_of
from bcrl.linear import Moments
from bcrl.policies.policy import TargetActions
from bcrl.representations.features import Encoded

_ROWS = 4096


@dataclass(frozen=True, eq=False)
class Anchor:
    """One logging policy: its returns, and Q_b on phi(s, a)."""

    logger: Logger
    returns: Returns
    q: Ridge

    @classmethod
    def of(cls, encoded: Encoded, logger: Logger, discount: float, trace: float, free: int | None) -> "Anchor":
        returns = returns_of(encoded, logger, discount, 0.0 if logger.mixed else trace)
        folds = []
        for number in range(logger.num_folds):
            own = np.flatnonzero(logger.fold == number)
            parts = [
                Sums.of(encoded.logged(logger.rows[piece]), returns.to_go[piece]) for piece in _pieces(own)
            ]
            folds.append(sum(parts[1:], start=parts[0]))
        return cls(logger, returns, fit(folds, free))


class Rows(NamedTuple):
    """A piece of the log under one policy: transitions, phi(s, a), phi(s, pi), phi(s', pi) (0 after an end)."""

    index: Ints
    logged: FloatArray
    here: FloatArray
    after: FloatArray


def pieces(encoded: Encoded, actions: TargetActions) -> Iterator[Rows]:
    """The whole log, in pieces that fit in memory."""
    dataset = encoded.dataset
    for index in _pieces(np.arange(len(dataset))):
        after = encoded.policy(dataset.rows[index] + 1, actions)
        after[dataset.terminated[index]] = 0.0
        yield Rows(index, encoded.logged(index), encoded.policy(dataset.rows[index], actions), after)


def _pieces(items: Ints) -> list[Ints]:
    return [items[first : first + _ROWS] for first in range(0, len(items), _ROWS)]


class OwnRows(NamedTuple):
    """The rows of a piece that one logger made: their places in the piece and among its own, and Delta there."""

    piece: Ints
    own: Ints
    delta: FloatArray


def own_rows(anchor: Anchor, rows: Rows) -> OwnRows:
    logger = anchor.logger
    place = np.searchsorted(logger.rows, rows.index)
    mine = np.flatnonzero(logger.rows[np.minimum(place, len(logger.rows) - 1)] == rows.index)
    own = place[mine]
    apart = rows.here[mine] - rows.logged[mine]
    return OwnRows(mine, own, np.einsum("nd,nd->n", apart, anchor.q.without[logger.fold[own]]))


@dataclass(frozen=True, eq=False)
class Advantage:
    """What a policy gains over one anchor, and the anchor's own value, as functions of the state.

    Attributes:
        anchor: over whom.
        gain: A_b(s) = gain^T phi(s, pi).
        value: V_b(s) = value^T phi(s, pi), from the same returns.
        cross: mean of phi(s, a) phi(s, pi)^T over the anchor's rows, shape (d, d).
    """

    anchor: Anchor
    gain: Ridge
    value: Ridge
    cross: FloatArray


@dataclass(frozen=True, eq=False)
class Reading:
    """One pass over the log under one policy.

    Attributes:
        flow: moments by fold of units, for the occupancy.
        cross: mean of phi(s, a) phi(s, pi)^T over all rows, shape (d, d).
        advantages: over each anchor.
    """

    flow: list[Moments]
    cross: FloatArray
    advantages: list[Advantage]


def read(
    encoded: Encoded, actions: TargetActions, anchors: list[Anchor], fold: Ints, free: int | None
) -> Reading:
    """The pass.

    Args:
        encoded: the log, seen through the representation.
        actions: the policy's actions at every observation row.
        anchors: the logging policies.
        fold: of each transition, by unit, shape (N,).
        free: number of the constant feature; None where there is none.
    """
    dataset, dim = encoded.dataset, encoded.fitted.dim
    flow = [Moments.zeros(dim) for _ in range(int(fold.max()) + 1)]
    total = np.zeros((dim, dim))
    crosses = [np.zeros((dim, dim)) for _ in anchors]
    gains, values = ([[Sums.zeros(dim) for _ in range(a.logger.num_folds)] for a in anchors] for _ in range(2))
    for rows in pieces(encoded, actions):
        for number in np.unique(fold[rows.index]):
            mine = fold[rows.index] == number
            rewards, end = dataset.rewards[rows.index[mine]], dataset.terminated[rows.index[mine]]
            flow[number] += Moments.from_features(rows.logged[mine], rows.after[mine], rewards, end)
        total += rows.logged.T @ rows.here
        for k, anchor in enumerate(anchors):
            own = own_rows(anchor, rows)
            crosses[k] += rows.logged[own.piece].T @ rows.here[own.piece]
            for number in np.unique(anchor.logger.fold[own.own]):
                mine = anchor.logger.fold[own.own] == number
                gain = Sums.of(rows.here[own.piece[mine]], own.delta[mine])
                gains[k][number] += gain
                values[k][number] += gain.about(rows.here[own.piece[mine]], anchor.returns.to_go[own.own[mine]])
    advantages = [
        Advantage(anchor, fit(gains[k], free), fit(values[k], free), crosses[k] / len(anchor.logger.rows))
        for k, anchor in enumerate(anchors)
    ]
    return Reading(flow, total / len(dataset), advantages)
