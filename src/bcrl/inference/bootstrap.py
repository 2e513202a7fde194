"""Bootstrap over blocks of episodes, from their moments: the cross-check of the influence interval.

Each draw weights the blocks with independent Exp(1) weights normalised to their number (the Bayesian bootstrap, Rubin 1981)
and solves again; to first order this equals resampling blocks, and no draw loses a block, so no draw is singular
where the data are not. Cost per draw: a weighted sum of d x d matrices and a solve, no pass over the data.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, stats

from bcrl.errors import BadInput
from bcrl.estimate import FloatArray
from bcrl.linear.moments import Moments
from bcrl.linear.whitening import DEFAULT_RIDGE

NUM_BLOCKS = 32


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """Values and weights of every draw.

    Attributes:
        values: value at the start states, shape (draws,).
        thetas: weights, shape (draws, d).
        standard_error: of the value, with the small-sample factor sqrt(B / (B - 1)).
        low, high: centre -+ t quantile with B - 1 degrees of freedom.
    """

    values: FloatArray
    thetas: FloatArray
    standard_error: float
    low: float
    high: float


def block_of(num_clusters: int, num_blocks: int = NUM_BLOCKS) -> NDArray[np.int64]:
    """The block of each cluster: dealt out in turn, so that every block spans the whole record; shape (num_clusters,)."""
    return np.arange(num_clusters, dtype=np.int64) % min(num_blocks, num_clusters)


def bootstrap(
    blocks: Sequence[Moments],
    *,
    discount: float,
    generator: np.random.Generator,
    start_sums: FloatArray | None = None,
    start_counts: NDArray[np.int64] | None = None,
    start_features: FloatArray | None = None,
    horizon: int | None = None,
    draws: int = 200,
    level: float = 0.95,
    ridge: float = DEFAULT_RIDGE,
) -> Bootstrap:
    """Redraw the blocks' weights and solve again.

    Args:
        blocks: moments of disjoint groups of clusters.
        discount: of the value.
        generator: source of the weights.
        start_sums: sum of phi(s0, pi) over the starts of each block, shape (B, d), for starts that come with the data.
        start_counts: number of starts of each block, shape (B,).
        start_features: phi(s0, pi) of starts sampled apart from the data, shape (n0, d); reweighted on their own.
        horizon: K iterations instead of the fixed point.
        draws: number of draws.
        level: confidence level.
        ridge: in units of tr(Sigma) / d.
    """
    if len(blocks) < 2:
        raise BadInput(f"A bootstrap needs at least 2 blocks of episodes; got {len(blocks)}.")
    own = start_sums is not None and start_counts is not None
    if own == (start_features is not None):
        raise BadInput(
            "Pass start_sums with start_counts (starts of the data), or start_features (starts of their own)."
        )
    solve = (
        _fixed_points(blocks, discount, ridge)
        if horizon is None
        else _iterated(blocks, discount, ridge, horizon)
    )
    values, thetas = np.empty(draws), np.empty((draws, blocks[0].dim))
    for draw in range(draws):
        weights = _weights(len(blocks), generator)
        thetas[draw] = solve(weights)
        if start_features is None:
            assert start_sums is not None and start_counts is not None
            starts = (weights @ start_sums) / (weights @ start_counts)
        else:
            starts = _weights(len(start_features), generator) @ start_features / len(start_features)
        values[draw] = starts @ thetas[draw]
    return _summary(values, thetas, len(blocks), level)


def _weights(count: int, generator: np.random.Generator) -> FloatArray:
    if count == 1:
        return np.ones(1)
    draw = generator.standard_exponential(count)
    return np.asarray(draw * (count / draw.sum()))


def _fixed_points(
    blocks: Sequence[Moments], discount: float, ridge: float
) -> Callable[[FloatArray], FloatArray]:
    """Weights of the blocks -> LSTD."""
    dim = blocks[0].dim
    systems = np.stack(
        [m.sigma - discount * m.c + ridge * np.trace(m.sigma) / dim * np.eye(dim) for m in blocks]
    )
    bs = np.stack([m.b for m in blocks])
    return lambda weights: np.asarray(np.linalg.solve(np.tensordot(weights, systems, 1), weights @ bs))


def _iterated(
    blocks: Sequence[Moments], discount: float, ridge: float, horizon: int
) -> Callable[[FloatArray], FloatArray]:
    """Weights of the blocks -> LSPE's weights after `horizon` iterations."""
    dim = blocks[0].dim
    sigmas = np.stack([m.sigma + ridge * np.trace(m.sigma) / dim * np.eye(dim) for m in blocks])
    cs, bs = np.stack([m.c for m in blocks]), np.stack([m.b for m in blocks])

    def solve(weights: FloatArray) -> FloatArray:
        factor = linalg.cho_factor(np.tensordot(weights, sigmas, 1))
        operator = linalg.cho_solve(factor, discount * np.tensordot(weights, cs, 1))
        constant, theta = linalg.cho_solve(factor, weights @ bs), np.zeros(dim)
        for _ in range(horizon):
            theta = constant + operator @ theta
        return np.asarray(theta)

    return solve


def _summary(values: FloatArray, thetas: FloatArray, num_blocks: int, level: float) -> Bootstrap:
    error = float(np.std(values, ddof=1)) * float(np.sqrt(num_blocks / (num_blocks - 1.0)))
    half = float(stats.t.ppf(0.5 + level / 2.0, num_blocks - 1)) * error
    centre = float(np.median(values))
    return Bootstrap(values, thetas, error, centre - half, centre + half)
