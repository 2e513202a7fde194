"""LSPE's two passes over a log by several processes: whole episodes travel, and each reads its own rows.

What fit.py does on all rows at once is done here on shards of episodes, and added up.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Dataset
from bcrl.estimate import FloatArray
from bcrl.linear import Moments
from bcrl.policies.policy import TargetActions
from bcrl.representations.features import Encoded, Fitted
from bcrl.training import Crew

_SHARD_ROWS = 250_000

Episodes = NDArray[np.int64]
# What one transition after another gives (fit.py's `SecondPass.over`).
Found = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
Pass = Callable[[Encoded, TargetActions, NDArray[np.int64], int], Found]


def in_shards(dataset: Dataset, episodes: Episodes) -> list[Episodes]:
    """These episodes in groups of about as many rows as a task should have."""
    ends = np.cumsum(dataset.lengths[episodes])
    return np.split(episodes, np.flatnonzero(np.diff((ends - 1) // _SHARD_ROWS)) + 1)


@dataclass(frozen=True, eq=False)
class _Shard:
    """Whole episodes, and what each policy does in them; their rows are read where the work is done."""

    episodes: Episodes
    policies: list[TargetActions]

    @classmethod
    def of(cls, dataset: Dataset, policies: Sequence[TargetActions], episodes: Episodes) -> "_Shard":
        rows = dataset.observation_rows(episodes)
        return cls(episodes, [actions.take(rows) for actions in policies])

    def read(self, dataset: Dataset, fitted: Fitted) -> Encoded:
        return Encoded.of(dataset.select(self.episodes), fitted)


def moments_of_blocks(
    crew: Crew,
    encoded: Encoded,
    policies: Sequence[TargetActions],
    blocks: Sequence[Episodes],
    advance: Callable[[int], None],
) -> list[list[Moments]]:
    """The first pass: for each policy the moments of every block of episodes."""
    dataset = encoded.dataset
    groups = [
        [_Shard.of(dataset, policies, episodes) for episodes in in_shards(dataset, block)] for block in blocks
    ]
    share = len(dataset) // sum(len(group) for group in groups)
    summed = crew.sums(
        _shard_moments, groups, _add_all, (dataset, encoded.fitted), lambda done: advance(done * share)
    )
    return [list(each) for each in zip(*summed, strict=True)]


def _shard_moments(shard: _Shard, dataset: Dataset, fitted: Fitted) -> list[Moments]:
    part = shard.read(dataset, fitted)
    return part.moments_of_all(np.arange(len(part.dataset)), shard.policies)


def _add_all(some: list[Moments], others: list[Moments]) -> list[Moments]:
    return [one + other for one, other in zip(some, others, strict=True)]


def second_pass(
    crew: Crew, over: Pass, encoded: Encoded, actions: TargetActions, unit: NDArray[np.int64], units: int
) -> Found:
    """The second pass: what `over` gives on all of the data."""
    dataset = encoded.dataset
    groups = in_shards(dataset, np.arange(dataset.num_episodes))
    own = [np.unique(unit[episodes], return_inverse=True) for episodes in groups]
    items = (
        (_Shard.of(dataset, [actions], episodes), numbered)
        for episodes, (_, numbered) in zip(groups, own, strict=True)
    )
    found = crew.each(partial(_over_shard, over), items, (dataset, encoded.fitted))
    scores, value = np.zeros((units, encoded.fitted.dim)), np.zeros(units)
    for (members, _), part in zip(own, found, strict=True):
        scores[members] += part[2]
        value[members] += part[3]
    weights, td = (np.concatenate([part[place] for part in found]) for place in (0, 1))
    return weights, td, scores, value


def _over_shard(
    over: Pass, item: tuple[_Shard, NDArray[np.int64]], dataset: Dataset, fitted: Fitted
) -> Found:
    """`over` a shard, whose units are numbered from 0."""
    shard, unit = item
    return over(shard.read(dataset, fitted), shard.policies[0], unit, int(unit.max()) + 1)
