"""What the log says about the policy that made it: whose episodes are whose, its V, and returns-to-go.

    V_b(s) = v^T phibar(s)                                                     on-policy least squares (LSTD)
    G_t = r_t + discount ((1 - trace) V_b(s_{t+1}) + trace G_{t+1})            trace 1: logged returns alone

phibar(s) is phi(s, a) averaged over a few actions, the same at every state. Where a record was cut off
nothing follows that was logged, so there V_b(s') closes it. V_b at a row is fitted without the row's fold
of units.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from bcrl import salts
from bcrl.data.dataset import Dataset
from bcrl.estimate import FloatArray
from bcrl.estimators.anchored.occupancy import ridged
from bcrl.inference.contrast import returns_to_go
from bcrl.inference.intervals import block_of
from bcrl.linear import Moments, td_errors
from bcrl.representations.features import Encoded

Ints = NDArray[np.int64]
# A logging policy with fewer units or rows than these cannot be an anchor of its own.
_LEAST_UNITS, _LEAST_ROWS = 6, 200
# Of V_b, in units of the mean eigenvalue: the one whose V predicts held-out returns best.
_RIDGES = (1e-6, 1e-4, 1e-2, 1.0)
_ACTIONS, _ROWS = 4, 4096


@dataclass(frozen=True, eq=False)
class Logger:
    """One logging policy's part of the log.

    Attributes:
        name: its label; empty where the log has none.
        episodes: its episodes, shape (e,).
        rows: its transitions, rising, shape (n,).
        fold: of each of them, by unit, shape (n,).
        mixed: its episodes were made by several policies that cannot be told apart, so that who acts later is
            not what follows from the state: their returns-to-go belong to no policy.
    """

    name: str
    episodes: Ints
    rows: Ints
    fold: Ints
    mixed: bool

    @property
    def num_folds(self) -> int:
        return int(self.fold.max()) + 1


def unit_folds(dataset: Dataset, folds: int, seed: int) -> Ints:
    """The fold of each unit, shape (units,): drawn, since dealt in turn it would follow the log's order."""
    order = np.random.default_rng([seed, salts.FOLDS]).permutation(dataset.num_units)
    return block_of(dataset.num_units, folds)[order]


def loggers(dataset: Dataset, folds: int, seed: int) -> list[Logger]:
    """The logging policies that the log tells apart and that made enough of it; else all of it as one."""
    everything, fold = np.arange(dataset.num_episodes), unit_folds(dataset, folds, seed)
    if dataset.behaviour is None:
        return [_logger(dataset, "", everything, fold, mixed=False)]
    names, maker = np.unique(np.asarray(dataset.behaviour), return_inverse=True)
    parts = [
        _logger(dataset, str(name), np.flatnonzero(maker == k), fold, mixed=False)
        for k, name in enumerate(names)
    ]
    enough = [
        part
        for part in parts
        if len(part.rows) >= _LEAST_ROWS and len(np.unique(dataset.units[part.episodes])) >= _LEAST_UNITS
    ]
    return enough or [_logger(dataset, "", everything, fold, mixed=len(names) > 1)]


def _logger(dataset: Dataset, name: str, episodes: Ints, fold: Ints, *, mixed: bool) -> Logger:
    rows = np.flatnonzero(np.isin(dataset.episode_of, episodes))
    own = fold[dataset.units[dataset.episode_of[rows]]]
    return Logger(name, episodes, rows, np.unique(own, return_inverse=True)[1], mixed)  # without empty folds


@dataclass(frozen=True, eq=False)
class Returns:
    """Returns-to-go of one logging policy.

    Attributes:
        traces: how much of G is logged, one number a column.
        to_go: G of each of its transitions, by trace, the logged returns last, shape (n, traces).
        baseline: V_b(s) at each of them, shape (n,).
        first: logged G at the start of each of its episodes, shape (e,).
        tail_share: share of the discounted future of an average start that lies beyond cut records.
        tail: part of each of the log's episodes in the error of `first`'s mean that the closing V_b brings,
        (E,).
    """

    traces: tuple[float, ...]
    to_go: FloatArray
    baseline: FloatArray
    first: FloatArray
    tail_share: float
    tail: FloatArray


def state_features(encoded: Encoded) -> NDArray[np.float32]:
    """phibar at every observation row, shape (N + E, d)."""
    dataset = encoded.dataset
    chosen = np.linspace(0, len(dataset) - 1, min(len(dataset), _ACTIONS)).astype(np.int64)
    actions = dataset.actions[chosen]
    if dataset.discrete:
        actions = np.unique(dataset.actions)[:_ACTIONS]
    matrix = dataset.action_matrix(actions)
    out = np.zeros((dataset.num_observations, encoded.fitted.dim), dtype=np.float32)
    for first in range(0, len(out), _ROWS):
        rows = np.arange(first, min(first + _ROWS, len(out)))
        z = encoded.at(rows)
        for action in matrix:
            out[rows] += encoded.fitted.features(z, np.broadcast_to(action, (len(rows), len(action)))) / len(
                matrix
            )
    return out


def returns_of(
    dataset: Dataset,
    states: NDArray[np.float32],
    logger: Logger,
    discount: float,
    traces: tuple[float, ...],
    free: int | None,
) -> Returns:
    """Returns-to-go of every decision that this logger made.

    Args:
        dataset: the log.
        states: phibar at every observation row.
        logger: whose.
        discount: of the value.
        traces: rising.
        free: number of the constant feature; None where there is none.
    """
    folds = _moments(dataset, states, logger)
    found = {one: _values(folds, states, logger, dataset, discount, free, one) for one in _RIDGES}
    # Every V_b is held against the same returns: closed by itself, a V_b of 0 would be right about itself.
    judge = _backwards(dataset, logger.episodes, found[_RIDGES[1]], discount, 1.0)[logger.rows]
    seen = dataset.rows[logger.rows]
    ridge = min(_RIDGES, key=lambda one: float(np.mean((judge - found[one][seen]) ** 2)))
    values = found[ridge]
    by_trace = [_backwards(dataset, logger.episodes, values, discount, trace) for trace in traces]
    first = dataset.offsets[:-1][logger.episodes]
    logged = _backwards(dataset, logger.episodes, values, discount, 1.0)
    last = dataset.offsets[1:][logger.episodes] - 1
    share = np.where(dataset.terminated[last], 0.0, np.power(discount, dataset.lengths[logger.episodes]))
    return Returns(
        traces=traces,
        to_go=np.stack([one[logger.rows] for one in by_trace], axis=1),
        baseline=values[seen],
        first=logged[first],
        tail_share=float(share.mean()),
        tail=_tail(
            dataset,
            states,
            logger,
            discount,
            share / len(last),
            ridged(_total(folds), discount, free, ridge)[0],
        ),
    )


def _moments(dataset: Dataset, states: NDArray[np.float32], logger: Logger) -> list[Moments]:
    """By fold, of phibar along the log: on policy whatever was done."""
    out = []
    for number in range(logger.num_folds):
        rows = logger.rows[logger.fold == number]
        seen = dataset.rows[rows]
        out.append(
            Moments.from_features(
                states[seen], states[seen + 1], dataset.rewards[rows], dataset.terminated[rows]
            )
        )
    return out


def _values(
    folds: list[Moments],
    states: NDArray[np.float32],
    logger: Logger,
    dataset: Dataset,
    discount: float,
    free: int | None,
    ridge: float,
) -> FloatArray:
    """V_b at every observation row of the logger, without the row's fold; 0 elsewhere, shape (N + E,)."""
    values = np.zeros(dataset.num_observations)
    for number in range(logger.num_folds):
        rest = _total([part for k, part in enumerate(folds) if k != number] or folds)
        weights = linalg.solve(ridged(rest, discount, free, ridge)[0], rest.mean.b)
        seen = dataset.rows[logger.rows[logger.fold == number]]
        values[seen] = states[seen] @ weights
        after = np.setdiff1d(seen + 1, seen)
        values[after] = states[after] @ weights
    return values


def _backwards(dataset: Dataset, episodes: Ints, v: FloatArray, discount: float, trace: float) -> FloatArray:
    """The recursion of the module's docstring, all episodes at once, shape (N,)."""
    last, ahead = dataset.offsets[1:][episodes] - 1, v[dataset.rows + 1]
    closing = dataset.rewards[last] + discount * np.where(dataset.terminated[last], 0.0, ahead[last])
    lengths = dataset.lengths[episodes]
    return returns_to_go(dataset.rewards, last, lengths, closing, discount, ahead=ahead, trace=trace)


def _tail(
    dataset: Dataset,
    states: NDArray[np.float32],
    logger: Logger,
    discount: float,
    share: FloatArray,
    system: FloatArray,
) -> FloatArray:
    """Part of each episode in the error that V_b's weights bring to the closing of cut records, shape (E,).

    Args:
        dataset, states, logger, discount: as in `returns_of`.
        share: weight of each of the logger's final states in the logged mean, shape (e,).
        system: phibar's (Sigma + ridge - discount C), shape (d, d).
    """
    final = dataset.rows[dataset.offsets[1:][logger.episodes] - 1] + 1
    dual = linalg.solve(system.T, share @ states[final].astype(np.float64))
    here, after = states[dataset.rows[logger.rows]], states[dataset.rows[logger.rows] + 1]
    rewards, end = dataset.rewards[logger.rows], dataset.terminated[logger.rows]
    moments = Moments.from_features(here, after, rewards, end)
    weights = linalg.solve(system, moments.mean.b)
    delta = td_errors(rewards, end, here @ weights, after @ weights, discount)
    parts = (here @ dual) * delta / len(logger.rows)
    return np.asarray(
        np.bincount(dataset.episode_of[logger.rows], weights=parts, minlength=dataset.num_episodes)
    )


def _total(parts: list[Moments]) -> Moments:
    return sum(parts[1:], start=parts[0])
