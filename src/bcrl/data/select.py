"""Parts of a dataset: an independent unit (an episode, or a whole cluster) is never on both sides of a cut.

Every choice is a draw from the caller's seed or generator, so the same seed gives the same parts.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bcrl import salts
from bcrl.data.dataset import Dataset
from bcrl.errors import BadInput

Ints = NDArray[np.int64]
Split = Literal["none", "half", "cross"]


class Part(NamedTuple):
    """Some episodes as a dataset of their own, and which observation rows of the first dataset they are."""

    dataset: Dataset
    rows: Ints | slice


def episodes(dataset: Dataset, chosen: Ints) -> Part:
    """The part of these episodes, in this order."""
    return Part(dataset.select(chosen), dataset.observation_rows(chosen))


def split_units(dataset: Dataset, fraction: float, seed: int) -> tuple[Ints, Ints]:
    """Transitions of a random `fraction` of the units, and of the rest, each in the dataset's order.

    With a single unit there is nothing to keep apart, and the transitions themselves are split in time.
    """
    if dataset.num_units < 2:
        cut = _size(fraction, len(dataset))
        return np.arange(cut), np.arange(cut, len(dataset))
    inside = _drawn_episodes(dataset, fraction, seed)[dataset.episode_of]
    return np.flatnonzero(inside), np.flatnonzero(~inside)


def split(dataset: Dataset, fraction: float, seed: int) -> tuple[Dataset, Dataset]:
    """Two datasets that share no independent unit: about `fraction` of
    the clusters (else episodes), and the rest."""
    if not 0.0 < fraction < 1.0:
        raise BadInput(f"fraction is {fraction}; expected a number between 0 and 1, e.g. 0.8.")
    if dataset.num_units < 2:
        raise BadInput(
            "The dataset has one independent unit (episode or cluster); expected at least 2 to split."
        )
    inside = _drawn_episodes(dataset, fraction, seed)
    return dataset.select(np.flatnonzero(inside)), dataset.select(np.flatnonzero(~inside))


def folds(dataset: Dataset, split: Split, seed: int) -> list[tuple[Part, Part]]:
    """Parts to learn on and to evaluate on, one pair a fold.

    Args:
        dataset: what is split.
        split: "none" learns and evaluates on everything; "half" learns on half of the units and evaluates on
            the other half; "cross" does so both ways round.
        seed: draws the halves.
    """
    if split == "none":
        everything = Part(dataset, slice(None))
        return [(everything, everything)]
    count = dataset.num_units
    if count < 4:
        raise BadInput(
            f"split={split!r} needs at least 4 episodes or clusters; got {count}. Use split='none'."
        )
    order = np.random.default_rng([seed, salts.FOLDS]).permutation(count)
    first = np.isin(dataset.units, order[: count // 2])
    left, right = (episodes(dataset, np.flatnonzero(side)) for side in (first, ~first))
    return [(left, right)] if split == "half" else [(left, right), (right, left)]


def some_episodes(dataset: Dataset, transitions: int, seed: int) -> Part:
    """Random whole episodes of about so many transitions, in the dataset's order."""
    order = np.random.default_rng([seed, salts.SOME_EPISODES]).permutation(dataset.num_episodes)
    cut = int(np.searchsorted(np.cumsum(dataset.lengths[order]), transitions)) + 1
    return episodes(dataset, np.sort(order[:cut]))


def sample_halves(dataset: Dataset, sample: int, generator: np.random.Generator, seed: int) -> list[Ints]:
    """At most `sample` transitions of each half of the units: the seed
    draws the halves, the generator within them."""
    return [subsample(half, sample, generator) for half in split_units(dataset, 0.5, seed)]


def subsample(items: Ints, sample: int, generator: np.random.Generator) -> Ints:
    """At most `sample` of these numbers, drawn without replacement, rising."""
    return np.sort(generator.choice(items, size=min(sample, len(items)), replace=False))


def _drawn_episodes(dataset: Dataset, fraction: float, seed: int) -> NDArray[np.bool_]:
    """Which episodes belong to a random `fraction` of the units, at
    least one unit and never all, shape (E,)."""
    count = dataset.num_units
    chosen = np.zeros(count, dtype=np.bool_)
    chosen[np.random.default_rng(seed).permutation(count)[: _size(fraction, count)]] = True
    return np.asarray(chosen[dataset.units])


def _size(fraction: float, count: int) -> int:
    return min(max(round(fraction * count), 1), count - 1)
