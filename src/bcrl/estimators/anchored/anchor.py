"""The logging policy's own Q, from its returns, and what the policy gains over it at every state.

    h = argmin E_log (h(s, a) - (G - V_b(s)))^2,   Q_b = V_b + h     ridge on phi(s, a), without the fold
    Delta_i = Q_b(s_i, pi) - Q_b(s_i, a_i)                           one Q_b for both terms: V_b cancels
    A_b(s) = E[Delta | s] = Q_b(s, pi) - E_{a ~ b} Q_b(s, a)         ridge on phi(s, pi)

G may be cut short by V_b (returns.py), which lowers its noise and may flatten the effect of actions. The
ridge and the trace of G are those whose h comes closest to the *logged* returns of held-out units: on
policy the answer is known.

The logged action enters only through its mean given the state. To leave Delta_i itself under weights of
state-action pairs is the trap: these weights prefer rows whose action already is the policy's, where Delta
is 0, and the gain vanishes. For the logged actions themselves Delta is 0 in every row, so A_b is 0 and the
value is the logged mean.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bcrl.estimate import FloatArray
from bcrl.estimators.anchored.regression import Ridge, Sums, fit
from bcrl.estimators.anchored.returns import Ints, Logger, Returns, returns_of
from bcrl.linear import Moments
from bcrl.policies.policy import TargetActions
from bcrl.representations.features import Encoded

_ROWS = 4096
# Of A_b on phi(s, pi): small, since its noise is averaged over the policy's whole way and a bias would stay.
_RIDGE = 1e-4


# Larger ones flatten actions that the logging policy seldom takes: held-out returns, which are of its own
# actions, would not show it.
_Q_RIDGES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
TRACES = (0.0, 0.5, 0.8, 0.95, 1.0)


@dataclass(frozen=True, eq=False)
class Anchor:
    """One logging policy: its returns, and h on phi(s, a)."""

    logger: Logger
    returns: Returns
    q: Ridge

    @classmethod
    def of(
        cls,
        encoded: Encoded,
        states: NDArray[np.float32],
        logger: Logger,
        discount: float,
        trace: float | None,
        free: int | None,
    ) -> "Anchor":
        """The anchor of this logger; a `trace` of None is chosen. Returns of a mixture judge nothing."""
        traces = (0.0,) if logger.mixed else TRACES if trace is None else (trace, 1.0)
        returns = returns_of(encoded.dataset, states, logger, discount, traces, free)
        over = returns.to_go - returns.baseline[:, None]
        folds = []
        for number in range(logger.num_folds):
            own = np.flatnonzero(logger.fold == number)
            parts = [Sums.of(encoded.logged(logger.rows[piece]), over[piece]) for piece in _pieces(own)]
            folds.append(sum(parts[1:], start=parts[0]))
        if trace is not None and not logger.mixed:
            folds = [part.only(0) for part in folds]
        return cls(logger, returns, fit(folds, free, ridges=_Q_RIDGES))

    @property
    def trace(self) -> float:
        return self.returns.traces[self.q.column]

    @cached_property
    def over(self) -> FloatArray:
        """G - V_b(s) of each of its transitions, by the trace that was chosen, shape (n,)."""
        return np.asarray(self.returns.to_go[:, self.q.column] - self.returns.baseline)

    @cached_property
    def logged(self) -> FloatArray:
        """Logged returns-to-go, shape (n,); those of a mixture are bootstrapped."""
        return np.asarray(self.returns.to_go[:, -1])


class Rows(NamedTuple):
    """A piece of the log: transitions, phi(s, a), phi(s, pi), and phi(s', pi), which is 0 after an end."""

    numbers: Ints
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
    """Rows of a piece that one logger made: places in the piece, places among its own, Delta there."""

    piece: Ints
    own: Ints
    delta: FloatArray


def own_rows(anchor: Anchor, rows: Rows) -> OwnRows:
    logger = anchor.logger
    place = np.searchsorted(logger.rows, rows.numbers)
    mine = np.flatnonzero(logger.rows[np.minimum(place, len(logger.rows) - 1)] == rows.numbers)
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
    sums = [[Sums.zeros(dim, 2) for _ in range(anchor.logger.num_folds)] for anchor in anchors]
    for rows in pieces(encoded, actions):
        for number in np.unique(fold[rows.numbers]):
            mine = fold[rows.numbers] == number
            rewards, end = dataset.rewards[rows.numbers[mine]], dataset.terminated[rows.numbers[mine]]
            flow[number] += Moments.from_features(rows.logged[mine], rows.after[mine], rewards, end)
        total += rows.logged.T @ rows.here
        for k, anchor in enumerate(anchors):
            own = own_rows(anchor, rows)
            crosses[k] += rows.logged[own.piece].T @ rows.here[own.piece]
            for number in np.unique(anchor.logger.fold[own.own]):
                mine = anchor.logger.fold[own.own] == number
                both = np.stack([own.delta[mine], anchor.logged[own.own[mine]]], axis=1)
                sums[k][number] += Sums.of(rows.here[own.piece[mine]], both)
    advantages = []
    for anchor, folds, cross in zip(anchors, sums, crosses, strict=True):
        gain = fit([part.only(0) for part in folds], free, ridges=(_RIDGE,))
        value = fit([part.only(1) for part in folds], free)
        advantages.append(Advantage(anchor, gain, value, cross / len(anchor.logger.rows)))
    return Reading(flow, total / len(dataset), advantages)
