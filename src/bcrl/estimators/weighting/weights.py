"""Importance weights of episodes: their logarithms, their weighted sums, and how heavy their tail is.

With log ratios l_t = log pi(a_t|s_t) - log b(a_t|s_t) the weight of the first t + 1 decisions is w_t =
exp(l_0 + ... + l_t). Every estimate built on them is a discounted sum over steps of weighted averages over
episodes,

    sum_t gamma^t  sum_i w_t^i x_t^i / B_t,   B_t = number of episodes, or sum_i w_t^i when self-normalised.

Weights stay logarithms until the largest one of a step has been divided out. An episode whose world ended
keeps its last weight and earns x = 0 from then on; one that we stopped watching leaves the average at the
steps after its end. Pareto's k follows Vehtari, Simpson, Gelman, Yao and Gabry (2024), fitted as in Zhang
and Stephens (2009).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bcrl.data.dataset import Dataset
from bcrl.estimate import FloatArray


@dataclass(frozen=True, eq=False)
class Weights:
    """Log weights per episode and step, shape (E, T), and which episodes are still observed there.

    Attributes:
        log: log w_t; the last one is carried on after an episode's end.
        observed: False at the steps after the end of an episode that did not terminate.
        index: transition of each step, shape (E, T); -1 after the end.
        discounts: gamma^t, shape (T,).
    """

    log: FloatArray
    observed: NDArray[np.bool_]
    index: NDArray[np.int64]
    discounts: FloatArray

    @classmethod
    def of(cls, dataset: Dataset, log_ratios: FloatArray, discount: float, horizon: int | None) -> "Weights":
        """The weights of every episode's first `horizon` decisions, from all transitions' log ratios."""
        longest = int(dataset.lengths.max()) if horizon is None else min(int(dataset.lengths.max()), horizon)
        step = np.arange(longest)
        inside = step < dataset.lengths[:, None]
        index = np.where(inside, dataset.offsets[:-1, None] + step, -1)
        terminated = dataset.terminated[dataset.offsets[1:] - 1]
        log = np.cumsum(np.where(inside, log_ratios[index], 0.0), axis=1)
        discounts = np.asarray(discount ** np.arange(longest, dtype=np.float64), dtype=np.float64)
        return cls(log, inside | terminated[:, None], index, discounts)

    def by_step(self, values: FloatArray) -> FloatArray:
        """Numbers per transition laid out by episode and step, (E, T); 0 after an episode's end."""
        return np.where(self.index >= 0, values[self.index], 0.0)

    def per_episode(self) -> "Weights":
        """The weight of all decisions of an episode, as that of a single step."""
        episodes = np.arange(len(self.log))[:, None]
        return Weights(self.log[:, -1:], np.ones_like(self.observed[:, :1]), episodes, np.ones(1))

    def relative(self) -> tuple[FloatArray, FloatArray]:
        """w_t / max w_t, shape (E, T), 0 where not observed; and the log of the maximum, shape (T,)."""
        log = np.where(self.observed, self.log, -np.inf)
        largest = log.max(axis=0)
        shift = np.where(np.isfinite(largest), largest, 0.0)
        return np.exp(log - shift), shift


def weighted_sum(weights: Weights, x: FloatArray, *, self_normalised: bool) -> tuple[float, FloatArray]:
    """The discounted sum of weighted averages, and each episode's influence on it, shape (E,).

    Args:
        weights: of every episode and step.
        x: what they multiply, (E, T).
        self_normalised: divide by the sum of weights instead of the number of episodes.
    """
    relative, shift = weights.relative()
    if self_normalised:
        share, size = relative, relative.sum(axis=0)
    else:
        share, size = weights.observed.astype(np.float64), weights.observed.sum(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            relative = np.where(relative > 0.0, relative * np.exp(shift), 0.0)
    size = np.maximum(size, np.finfo(np.float64).tiny)
    with np.errstate(over="ignore", invalid="ignore"):
        average = (relative * x).sum(axis=0) / size
        influence = (weights.discounts * (relative * x - share * average) / size).sum(axis=1)
        return float(weights.discounts @ average), influence


def effective_sample_size(weights: Weights) -> FloatArray:
    """(sum w)^2 / sum w^2 at every step, shape (T,): episodes' worth of evidence left."""
    relative, _ = weights.relative()
    squares = np.square(relative).sum(axis=0)
    size: FloatArray = np.square(relative.sum(axis=0)) / np.where(squares > 0.0, squares, 1.0)
    return size


def pareto_k(log_weights: FloatArray) -> float | None:
    """Shape of the weights' tail; None with too few weights.

    Above 0.7 averages of the weights are unreliable, above 1 the weights have no mean.
    """
    n = len(log_weights)
    tail = int(min(0.2 * n, 3.0 * np.sqrt(n)))
    if tail < 5 or not np.isfinite(log_weights.max()):
        return None
    ordered = np.sort(np.exp(log_weights - log_weights.max()))
    excess = ordered[-tail:] - ordered[-tail - 1]
    excess = excess[excess > 0.0]
    return _generalised_pareto(excess) if len(excess) >= 5 else 0.0


def _generalised_pareto(excess: FloatArray) -> float:
    """Zhang and Stephens' posterior mean of the shape, shrunk to 0.5 by ten observations' worth of prior."""
    n = len(excess)
    points = 30 + int(np.sqrt(n))
    quartile = excess[int(n / 4 + 0.5) - 1]
    b = 1.0 / excess[-1] + (1.0 - np.sqrt(points / (np.arange(1, points + 1) - 0.5))) / (3.0 * quartile)
    b = np.where(b == 0.0, 1e-12, b)
    k = np.log1p(-b[:, None] * excess).mean(axis=1)
    likelihood = n * (np.log(-b / k) - k - 1.0)
    posterior = special.softmax(likelihood)
    shape = float(np.log1p(-(posterior @ b) * excess).mean())
    return (n * shape + 10 * 0.5) / (n + 10)
