"""What the log itself predicts, on units that were held out: the doctor's one regression.

The mean, a line, or ridge regression on random cosines: whichever errs least on held-out units. It is fitted
on three quarters of the units and asked about the fourth, so what it predicts is in the data and not in its
own memory. Images are not read; where there is nothing else, only the mean is predicted.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Dataset, centred

FloatArray = NDArray[np.float64]
Ints = NDArray[np.int64]
_ROWS, _NUMBERS = 20_000, 4_000_000  # at most so many rows, and so many numbers of input
_COSINES, _FOLDS, _BLOCKS = 200, 4, 8


@dataclass(frozen=True, eq=False)
class Sample:
    """Transitions of whole episodes, in blocks of neighbours, and the fold that each is held out with.

    Attributes:
        dataset: the log.
        episodes: which ones, in the log's order.
        transitions: theirs.
        episode: of each transition.
    """

    dataset: Dataset
    episodes: Ints
    transitions: Ints
    episode: Ints

    @classmethod
    def of(cls, dataset: Dataset) -> "Sample":
        """As much of the log as is read in a second."""
        width = sum(int(np.prod(v.shape[1:])) for v in dataset.observations.values() if v.ndim <= 2)
        most = int(min(_ROWS, _NUMBERS / max(width, 1)))
        count = dataset.num_episodes
        if len(dataset) > most:
            count = max(_FOLDS, int(count * most / len(dataset)))
        blocks = min(_BLOCKS, count)
        starts = np.linspace(0, dataset.num_episodes - count // blocks, blocks).astype(np.int64)
        episodes = np.unique((starts[:, None] + np.arange(count // blocks)).ravel())
        if count == dataset.num_episodes:
            episodes = np.arange(count)
        rows = dataset.observation_rows(episodes)
        owner = np.repeat(episodes, dataset.lengths[episodes])
        ends = np.cumsum(dataset.lengths[episodes] + 1) - 1  # of each episode, the row that nothing follows
        transitions = np.delete(rows, ends) - owner
        return cls(dataset, episodes, transitions, owner)

    @property
    def unit(self) -> Ints:
        """Independent unit of each transition."""
        return np.asarray(self.dataset.units[self.episode])

    @property
    def enough(self) -> bool:
        """Whether there are units to hold out."""
        return len(np.unique(self.unit)) >= 2 * _FOLDS

    def states(self, following: bool = False) -> FloatArray:
        """The vectors of s (or of s'), side by side; no column where there are images only."""
        rows = self.transitions + self.episode + following
        parts = [v[rows].reshape(len(rows), -1) for v in self.dataset.observations.values() if v.ndim <= 2]
        return np.concatenate([np.zeros((len(rows), 0)), *(centred(part) for part in parts)], axis=1)

    def actions(self) -> FloatArray:
        """Logged actions as methods see them."""
        return self.dataset.action_matrix(self.dataset.actions[self.transitions]).astype(np.float64)

    def predict(self, inputs: FloatArray, targets: FloatArray) -> FloatArray:
        """`targets` (n, k) predicted from `inputs` (n, d) on units that the fit has not seen."""
        tried = self.predictions(inputs, targets)
        best = np.argmin([np.square(targets - one).mean(axis=0) for one in tried], axis=0)
        return np.stack([tried[number][:, column] for column, number in enumerate(best)], axis=1)

    def predictions(self, inputs: FloatArray, targets: FloatArray) -> list[FloatArray]:
        """The same by the mean, by a line, and by cosines."""
        own, number = np.unique(self.unit, return_inverse=True)
        fold = np.random.default_rng(0).permutation(len(own))[number] % _FOLDS
        x = _features(inputs)
        widths = sorted({1, 1 + int((inputs.std(axis=0) > 0.0).sum()), x.shape[1]})
        return [self._held_out(x[:, :width], targets, fold) for width in widths]

    def _held_out(self, x: FloatArray, targets: FloatArray, fold: Ints) -> FloatArray:
        parts = [x[fold == f].T @ x[fold == f] for f in range(_FOLDS)]
        moments = [x[fold == f].T @ targets[fold == f] for f in range(_FOLDS)]
        ridge = 1e-3 * len(x) * np.eye(x.shape[1])
        ridge[0, 0] = 1e-9 * len(x)  # the mean is not shrunk
        predicted = np.empty_like(targets)
        for f in range(_FOLDS):
            theta = np.linalg.solve(sum(parts) - parts[f] + ridge, sum(moments) - moments[f])
            predicted[fold == f] = x[fold == f] @ theta
        return predicted

    def mean_and_error(self, values: FloatArray) -> tuple[float, float]:
        """Mean over transitions, and its standard error where units are independent."""
        mean = float(values.mean())
        sums = np.bincount(np.unique(self.unit, return_inverse=True)[1], weights=values - mean)
        return mean, float(np.sqrt(np.square(sums).sum())) / len(values)


def _features(inputs: FloatArray) -> FloatArray:
    """1, the standardised inputs, and cosines of them, shape (n, 1 + d + 200)."""
    spread = inputs.std(axis=0)
    x = (inputs - inputs.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    x = np.clip(x, -5.0, 5.0)[:, spread > 0.0]
    ones = np.ones((len(x), 1))
    if x.shape[1] == 0:
        return ones
    generator = np.random.default_rng(0)
    weights = generator.normal(size=(x.shape[1], _COSINES)) / np.sqrt(x.shape[1])
    cosines = np.cos(
        x @ (weights * generator.uniform(0.3, 3.0, _COSINES)) + generator.uniform(0, 6.3, _COSINES)
    )
    return np.concatenate([ones, x, np.sqrt(2.0) * cosines], axis=1)
