"""What the log says about the policy that made it: whose episodes are whose, and returns-to-go.

    G_t = r_t + discount ((1 - trace) Q(s_{t+1}, a_{t+1}) + trace G_{t+1})        trace 1: logged returns alone

Where a record was cut off nothing follows that was logged, so there G is Q(s, a) itself, bootstrapped on policy:
Q is the fixed point of least squares on the logged next actions (SARSA), without the row's own fold of units.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Dataset
from bcrl.estimate import FloatArray
from bcrl.inference.intervals import block_of
from bcrl.linear import Moments, lspe
from bcrl.representations.features import Encoded

Ints = NDArray[np.int64]
# A logging policy with fewer units or rows than these cannot be an anchor of its own.
_LEAST_UNITS, _LEAST_ROWS = 6, 200
# In units of the mean eigenvalue: on policy the iteration contracts, and a small ridge is enough.
_RIDGE = 1e-5


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


def loggers(dataset: Dataset, folds: int) -> list[Logger]:
    """The logging policies that the log tells apart and that made enough of it; else all of it as one."""
    everything = np.arange(dataset.num_episodes)
    if dataset.behaviour is None:
        return [_logger(dataset, "", everything, folds, mixed=False)]
    names, maker = np.unique(np.asarray(dataset.behaviour), return_inverse=True)
    parts = [_logger(dataset, str(name), np.flatnonzero(maker == k), folds, mixed=False) for k, name in enumerate(names)]
    enough = [
        part
        for part in parts
        if len(part.rows) >= _LEAST_ROWS and len(np.unique(dataset.units[part.episodes])) >= _LEAST_UNITS
    ]
    return enough or [_logger(dataset, "", everything, folds, mixed=len(names) > 1)]


def _logger(dataset: Dataset, name: str, episodes: Ints, folds: int, *, mixed: bool) -> Logger:
    rows = np.flatnonzero(np.isin(dataset.episode_of, episodes))
    units, place = np.unique(dataset.units[dataset.episode_of[rows]], return_inverse=True)
    return Logger(name, episodes, rows, block_of(len(units), folds)[place], mixed)


@dataclass(frozen=True, eq=False)
class Returns:
    """Returns-to-go of one logging policy.

    Attributes:
        to_go: G of each of its transitions, shape (n,).
        first: G at the start of each of its episodes, shape (e,).
        tail_share: share of the discounted future of an average start that lies beyond cut records.
        sarsa: weights of the on-policy Q on all its units, shape (d,); None where nothing was bootstrapped.
        moments: what they were solved from; None where nothing was bootstrapped.
    """

    to_go: FloatArray
    first: FloatArray
    tail_share: float
    sarsa: FloatArray | None
    moments: Moments | None


def returns_of(encoded: Encoded, logger: Logger, discount: float, trace: float) -> Returns:
    """Returns-to-go of every decision that this logger made."""
    dataset = encoded.dataset
    last = dataset.offsets[1:][logger.episodes] - 1
    cut = ~dataset.terminated[last]
    values, sarsa, moments = np.zeros(len(dataset)), None, None
    if discount > 0.0 and (cut.any() or trace < 1.0):
        folds = _sarsa_moments(encoded, logger)
        moments = sum(folds[1:], start=folds[0])
        sarsa = _fixed_point(moments, discount)
        for number in range(logger.num_folds):
            others = [part for k, part in enumerate(folds) if k != number] or folds
            own = logger.rows[logger.fold == number]
            values[own] = encoded.logged(own) @ _fixed_point(sum(others[1:], start=others[0]), discount)
    to_go = _backwards(dataset, logger.episodes, values, discount, trace)
    left = np.where(cut, np.power(discount, dataset.lengths[logger.episodes] - 1.0), 0.0)
    return Returns(
        to_go=to_go[logger.rows],
        first=to_go[dataset.offsets[:-1][logger.episodes]],
        tail_share=float(left.mean()) if sarsa is not None else 0.0,
        sarsa=sarsa,
        moments=moments,
    )


def _backwards(dataset: Dataset, episodes: Ints, q: FloatArray, discount: float, trace: float) -> FloatArray:
    """The recursion of the module's docstring, all episodes at once, shape (N,)."""
    to_go = np.zeros(len(dataset))
    last, lengths = dataset.offsets[1:][episodes] - 1, dataset.lengths[episodes]
    closed = dataset.terminated[last] | (discount == 0.0)
    to_go[last] = np.where(closed, dataset.rewards[last], q[last])
    for back in range(1, int(lengths.max())):
        here = last[lengths > back] - back
        following = (1.0 - trace) * q[here + 1] + trace * to_go[here + 1]
        to_go[here] = dataset.rewards[here] + discount * following
    return to_go


def usable_rows(dataset: Dataset, rows: Ints) -> NDArray[np.bool_]:
    """Which of these transitions have a next action in the log, or need none, shape (n,)."""
    last = np.zeros(len(dataset), dtype=np.bool_)
    last[dataset.offsets[1:] - 1] = True
    return np.asarray(~last[rows] | dataset.terminated[rows])


def _sarsa_moments(encoded: Encoded, logger: Logger) -> list[Moments]:
    usable = usable_rows(encoded.dataset, logger.rows)
    return [
        encoded.behaviour_moments(logger.rows[usable & (logger.fold == number)])
        for number in range(logger.num_folds)
    ]


def _fixed_point(moments: Moments, discount: float) -> FloatArray:
    """LSTD's weights; 0 where no transition shows what follows."""
    if moments.count == 0:
        return np.zeros(moments.dim)
    solution = lspe(moments, discount, iterations=1, ridge=_RIDGE)
    return np.zeros(moments.dim) if solution.lstd is None else solution.lstd
