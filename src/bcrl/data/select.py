"""Parts of a dataset that share no independent unit: an episode, or a whole cluster, is never on both sides."""

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Dataset


def split_units(dataset: Dataset, fraction: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Transitions of a random `fraction` of the units, and of the rest, each in the dataset's order.

    With a single unit there is nothing to keep apart, and the transitions themselves are split in time.
    """
    count = int(dataset.units.max()) + 1
    if count < 2:
        cut = min(max(round(fraction * len(dataset)), 1), len(dataset) - 1)
        return np.arange(cut), np.arange(cut, len(dataset))
    order = np.random.default_rng(seed).permutation(count)
    chosen = np.zeros(count, dtype=bool)
    chosen[order[: min(max(round(fraction * count), 1), count - 1)]] = True
    mask = chosen[dataset.units[dataset.episode_of]]
    return np.flatnonzero(mask), np.flatnonzero(~mask)
