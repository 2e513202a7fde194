"""The view without features: from (s', pi(s')) to the nearest logged transitions, and on from there."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bcrl import salts
from bcrl.estimate import FloatArray
from bcrl.inference.inputs import Inputs
from bcrl.inference.views.linear import View

CHAIN_ROWS = 5_000  # transitions that the chain looks at
_NEIGHBOURS = 3
_CHAIN_STEPS = 1_000  # that a chain is followed for
_NEAR = 0.05  # of the median distance between transitions
_TIE, _STRIDE = 1e-5, 7919  # of the mean square, that tells equally near ones apart; places between two draws
_LEFT = 1e-3  # of the discounted future, where a chain stops


def chain_view(
    inputs: Inputs, discount: float, horizon: int | None, rows: int = CHAIN_ROWS
) -> tuple[View, float]:
    """From (s', pi(s')) to the nearest logged transitions, and so on; also its novelty.

    Novelty: median distance that the policy's steps have to jump, over the median distance between a logged
    transition and the nearest one of another episode, both weighted by where the chain goes.
    """
    keep = _whole_episodes(inputs, rows)
    points = inputs.here[keep].astype(np.float32)
    place = np.full(len(inputs.here), -1)
    place[keep] = np.arange(len(keep))
    moves, jump = _nearest(inputs.following[keep], inputs.following_weights[keep], points)
    starts, _ = _nearest(inputs.starts[:500], inputs.start_weights[:500], points)
    alive = discount * ~inputs.terminated[keep]
    now = np.asarray(starts.mean(axis=0)).ravel()
    total, steps = np.zeros(len(keep)), horizon
    if horizon is None:
        steps = math.ceil(math.log(_LEFT * (1.0 - discount)) / math.log(discount)) if discount > 0.0 else 1
    assert steps is not None
    for _ in range(min(steps, _CHAIN_STEPS)):
        total += now
        now = np.asarray(moves.T @ (now * alive)).ravel()
        if now.sum() < _LEFT * (1.0 - min(discount, 0.999)):
            break
    else:  # by now the chain visits the same places over and over
        rest = max(steps - _CHAIN_STEPS, 0)
        total += now * (rest if discount == 1.0 else (1.0 - discount**rest) / (1.0 - discount))
    weights = np.zeros(len(inputs.here))
    weights[keep] = total
    typical = _between_episodes(points, inputs.episode[keep])
    novelty = float(total @ jump / max(total.sum(), 1e-300) / max(typical, 1e-6))
    return View("chain", float(weights @ inputs.rewards), weights, None, None), novelty


def _whole_episodes(inputs: Inputs, rows: int) -> NDArray[np.int64]:
    """Places of the first episodes' transitions, about so many."""
    if len(inputs.here) <= rows:
        return np.arange(len(inputs.here))
    last = inputs.episode[rows]
    keep = np.flatnonzero(inputs.episode < last)
    return keep if len(keep) else np.arange(rows)


def _nearest(
    points: FloatArray, weights: FloatArray, among: NDArray[np.float32]
) -> tuple[sparse.csr_matrix, FloatArray]:
    """Each point's move to its nearest logged transitions (n, rows), and the mean distance that it jumps."""
    count, draws, width = points.shape
    flat = points.reshape(-1, width).astype(np.float32)
    squares = np.einsum("nk,nk->n", among, among)
    near = np.empty((len(flat), min(_NEIGHBOURS, len(among))), dtype=np.int64)
    distance = np.empty(len(flat))
    # In tables many logged transitions are equally near: each point takes its own draw of them. Without it
    # rounding would choose, the same few for all, and others on another machine.
    ties = np.random.default_rng(salts.VIEWS).random(len(among), dtype=np.float32) * _TIE * squares.mean()
    orders = np.lib.stride_tricks.sliding_window_view(np.concatenate([ties, ties]), len(among))
    for first in range(0, len(flat), 2_000):
        block = flat[first : first + 2_000]
        gap = squares - 2.0 * block @ among.T
        gap += orders[(np.arange(first, first + len(block)) * _STRIDE) % len(among)]
        chosen = np.argpartition(gap, near.shape[1] - 1, axis=1)[:, : near.shape[1]]
        near[first : first + 2_000] = chosen
        least = np.take_along_axis(gap, chosen, axis=1).min(axis=1) + np.einsum("nk,nk->n", block, block)
        distance[first : first + 2_000] = np.sqrt(np.maximum(least, 0.0))
    mass = np.repeat(weights.reshape(-1) / near.shape[1], near.shape[1])
    origin = np.repeat(np.repeat(np.arange(count), draws), near.shape[1])
    moves = sparse.csr_matrix((mass, (origin, near.reshape(-1))), shape=(count, len(among)))
    return moves, np.asarray((distance.reshape(count, draws) * weights).sum(axis=1))


def _between_episodes(points: NDArray[np.float32], episode: NDArray[np.int64], sample: int = 800) -> float:
    """Mean distance between a transition and the nearest one of another episode."""
    rows = np.linspace(0, len(points) - 1, min(len(points), sample)).astype(np.int64)
    squares = np.einsum("nk,nk->n", points, points)
    gap = squares[rows, None] + squares - 2.0 * points[rows] @ points.T
    gap[episode[rows, None] == episode] = np.inf
    least = np.sqrt(np.maximum(gap.min(axis=1), 0.0))
    # Where states repeat exactly, as in tables, the nearest is at distance 0; a twentieth of what lies
    # between any two transitions is near in every world.
    apart = (
        float(np.median(np.sqrt(np.maximum(gap[np.isfinite(gap)], 0.0)))) if np.isfinite(gap).any() else 1.0
    )
    nearest = float(np.mean(least[np.isfinite(least)])) if np.isfinite(least).any() else 1.0
    return max(nearest, _NEAR * apart)
