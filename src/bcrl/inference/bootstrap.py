"""Bootstrap over blocks of episodes, from their moments: the cross-check of the influence interval.

Each draw weights the blocks with independent Exp(1) weights normalised to their number (the Bayesian
bootstrap, Rubin 1981) and solves again; to first order this equals resampling blocks, and no draw loses a
block, so no draw is singular where the data are not. Cost per draw: a weighted sum of d x d matrices and a
solve, no pass over the data.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from bcrl.errors import BadInput
from bcrl.estimate import FloatArray
from bcrl.linear.moments import DEFAULT_RIDGE, Moments

NUM_BLOCKS = 32


def block_of(num_clusters: int, num_blocks: int = NUM_BLOCKS) -> NDArray[np.int64]:
    """The block of each cluster, dealt in turn so that every block spans all of the record."""
    return np.arange(num_clusters, dtype=np.int64) % min(num_blocks, num_clusters)


def bootstrap(
    blocks: Sequence[Moments],
    discount: float,
    generator: np.random.Generator,
    *,
    horizon: int | None = None,
    draws: int = 200,
    ridge: float = DEFAULT_RIDGE,
) -> FloatArray:
    """Redraw the blocks' weights and solve again: theta of every draw, shape (draws, d).

    Args:
        blocks: moments of disjoint groups of clusters.
        discount: of the value.
        generator: source of the weights.
        horizon: K iterations instead of the fixed point.
        draws: number of draws.
        ridge: in units of tr(Sigma) / d.
    """
    if len(blocks) < 2:
        raise BadInput(f"A bootstrap needs at least 2 blocks of episodes; got {len(blocks)}.")
    solve = (
        _fixed_points(blocks, discount, ridge)
        if horizon is None
        else _iterated(blocks, discount, ridge, horizon)
    )
    thetas = np.empty((draws, blocks[0].dim))
    for draw in range(draws):
        exponential = generator.standard_exponential(len(blocks))
        thetas[draw] = solve(exponential * (len(blocks) / exponential.sum()))
    return thetas


def bootstrap_error(thetas: FloatArray, x0: FloatArray, num_blocks: int) -> float:
    """Standard error of x0^T theta, start states held fixed: the draws' spread times sqrt(B / (B - 1))."""
    values = np.array([x0 @ theta for theta in thetas])
    return float(np.std(values, ddof=1)) * float(np.sqrt(num_blocks / (num_blocks - 1.0)))


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
