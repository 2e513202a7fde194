"""Importance weights of whole episodes: their logarithms, their sums, and how far they can be trusted.

With log ratios l_t = log pi(a_t|s_t) - log b(a_t|s_t) the weight of the first t + 1 decisions is w_t = exp(l_0 + ... + l_t).
Every estimate built on them is a discounted sum over steps of weighted averages over episodes,

    sum_t gamma^t  sum_i w_t^i x_t^i / B_t,      B_t = number of episodes, or sum_i w_t^i when self-normalised.

Weights stay logarithms until the largest one of a step has been divided out. An episode whose world ended keeps its last
weight and earns x = 0 from then on; one that we stopped watching leaves the average at the steps after its end.
Pareto's k follows Vehtari, Simpson, Gelman, Yao and Gabry (2024), fitted as in Zhang and Stephens (2009).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bcrl.data.dataset import Dataset
from bcrl.errors import BadInput
from bcrl.estimate import Check, FloatArray, Interval
from bcrl.inference.intervals import interval_around
from bcrl.question import Starts

ENOUGH, TOO_FEW = 30.0, 5.0
STILL_COUNTS = 0.01


def require_own_starts(dataset: Dataset, starts: Starts, method: str) -> None:
    """Refuse start states that no logged episode begins with: weights only reach the data's own starts."""
    dataset.require_order(method)
    if starts.unit is None:
        raise BadInput(
            f"{method} values the logged episodes from where they begin; it cannot move to other start states. "
            "Leave starts= out, or use a method with V(s) (LSPE, FQE, ModelBased)."
        )


@dataclass(frozen=True, eq=False)
class Weights:
    """Log weights per episode and step, shape (E, T), and which episodes are still observed there.

    Attributes:
        log: log w_t; the last one is carried on after an episode's end.
        observed: False at the steps after the end of an episode that did not terminate.
        index: transition of each step, shape (E, T); -1 after the end.
    """

    log: FloatArray
    observed: NDArray[np.bool_]
    index: NDArray[np.int64]

    def payoff(self, values: FloatArray) -> FloatArray:
        """Numbers per transition laid out by episode and step; 0 after an episode's end."""
        return np.where(self.index >= 0, values[self.index], 0.0)

    def last(self) -> "Weights":
        """The weight of each whole episode as a single step."""
        steps = np.arange(len(self.log))[:, None]
        return Weights(self.log[:, -1:], np.ones_like(self.observed[:, :1]), steps)


def weights_of(dataset: Dataset, log_ratio: FloatArray, horizon: int | None) -> Weights:
    """Cumulative log weights of the first `horizon` decisions of every episode."""
    longest = int(dataset.lengths.max()) if horizon is None else min(int(dataset.lengths.max()), horizon)
    step = np.arange(longest)
    inside = step < dataset.lengths[:, None]
    index = np.where(inside, dataset.offsets[:-1, None] + step, -1)
    ends = dataset.terminated[dataset.offsets[1:] - 1]
    log = np.cumsum(np.where(inside, log_ratio[index], 0.0), axis=1)
    return Weights(log, inside | ends[:, None], index)


def discounts(discount: float, steps: int) -> FloatArray:
    """gamma^0 .. gamma^(steps - 1)."""
    return np.asarray(discount ** np.arange(steps, dtype=np.float64), dtype=np.float64)


def weighted_sum(
    weights: Weights, payoff: FloatArray, scale: FloatArray, *, self_normalised: bool
) -> tuple[float, FloatArray]:
    """The discounted sum of weighted averages, and each episode's influence on it, shape (E,).

    Args:
        weights: log weights, (E, T).
        payoff: what the weights multiply, (E, T).
        scale: discount of each step, (T,).
        self_normalised: divide by the sum of weights instead of the number of episodes.
    """
    log = np.where(weights.observed, weights.log, -np.inf)
    largest = log.max(axis=0)
    shift = np.where(np.isfinite(largest), largest, 0.0)
    relative = np.exp(log - shift)
    if self_normalised:
        share, size = relative, relative.sum(axis=0)
    else:
        share, size = weights.observed.astype(np.float64), weights.observed.sum(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            relative = np.where(relative > 0.0, relative * np.exp(shift), 0.0)
    size = np.maximum(size, np.finfo(np.float64).tiny)
    with np.errstate(over="ignore", invalid="ignore"):
        average = (relative * payoff).sum(axis=0) / size
        influence = (scale * (relative * payoff - share * average) / size).sum(axis=1)
        return float(scale @ average), influence


def effective_sample_size(weights: Weights) -> FloatArray:
    """(sum w)^2 / sum w^2 at every step, shape (T,): episodes' worth of evidence left."""
    log = np.where(weights.observed, weights.log, -np.inf)
    largest = log.max(axis=0)
    relative = np.exp(log - np.where(np.isfinite(largest), largest, 0.0))
    squares = np.square(relative).sum(axis=0)
    size: FloatArray = np.square(relative.sum(axis=0)) / np.where(squares > 0.0, squares, 1.0)
    return size


def pareto_k(log_weights: FloatArray) -> float | None:
    """Shape of the weights' tail (above 0.7 averages are unreliable, above 1 they have no mean); None with too few weights."""
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


def weight_checks(weights: Weights, scale: FloatArray) -> tuple[tuple[Check, ...], FloatArray, float]:
    """The checks on the weights, the effective sample size per step, and its least value where the discount still counts."""
    ess = effective_sample_size(weights)
    counts = np.flatnonzero(scale >= STILL_COUNTS * scale[0])
    least, last = float(ess[counts].min()), int(counts[-1])
    verdict = "distrust" if least < TOO_FEW else "caution" if least < ENOUGH else "trust"
    episodes = len(weights.log)
    size = Check(
        "effective sample size",
        least,
        TOO_FEW,
        verdict,  # type: ignore[arg-type]
        f"The weights leave the evidence of {least:.1f} of {episodes} episodes"
        + (": a handful of episodes decides the value." if least < ENOUGH else "."),
    )
    k = pareto_k(weights.log[weights.observed[:, last], last])
    if k is None:
        doubt, meaning = "caution", f"{episodes} episodes are too few to judge the weights' tail."
    else:
        doubt = "distrust" if k > 1.0 else "caution" if k > 0.7 else "trust"
        heavy = "so heavy that averages of weights are unreliable" if k > 0.7 else "light enough to average"
        meaning = f"The tail of the weights is {heavy} (Pareto k {k:.2f})."
    tail = Check("Pareto k of the weights", k, 0.7, doubt, meaning)  # type: ignore[arg-type]
    return (size, tail), ess, least


def record_end_check(dataset: Dataset, discount: float, horizon: int | None) -> Check:
    """How much of the value lies beyond the end of the records: gamma^T of episodes that did not terminate."""
    lengths = dataset.lengths.astype(np.float64)
    stopped = ~dataset.terminated[dataset.offsets[1:] - 1]
    if horizon is None:
        left = np.where(stopped, discount**lengths, 0.0)
    elif discount == 1.0:
        left = np.where(stopped, np.maximum(horizon - lengths, 0.0) / horizon, 0.0)
    else:
        left = np.where(stopped, np.maximum(discount**lengths - discount**horizon, 0.0), 0.0)
        left = left / (1.0 - discount**horizon)
    share = float(left.mean())
    verdict = "trust" if share < 0.02 else "caution" if share < 0.1 else "distrust"
    meaning = (
        f"{100 * share:.1f} % of the discounted steps lie after the end of the records and count as 0 here."
    )
    return Check("value beyond the records", share, 0.02, verdict, meaning)  # type: ignore[arg-type]


def unit_interval(
    dataset: Dataset, value: float, influence: FloatArray, level: float
) -> tuple[float | None, Interval | None, FloatArray | None]:
    """Standard error, interval of this level and influence per independent unit, from the influence per episode.

    Student's t with units - 1 degrees of freedom; None where there is only one unit or the weights overflowed.
    """
    units = dataset.num_units
    if units < 2 or not np.isfinite(influence).all() or not np.isfinite(value):
        return None, None, None
    per_unit = np.bincount(dataset.units, weights=influence, minlength=units) * np.sqrt(units / (units - 1))
    error = float(np.sqrt(np.square(per_unit).sum()))
    return error, interval_around(value, error, units - 1, level), per_unit
