"""The Lagrangian's saddle point in the last layers, solved for on all data while the layers below stay as learned.

With Q = w^T psi and zeta = max(0, u^T phi) on the networks' last hidden layers (and a constant, and one unit each for the
absorbing state) the stationary point is, on the set of rows where zeta > 0, the linear system

    alpha_zeta S u - A w + lambda m = alpha_r b      S = E[phi phi^T], A = E[phi (g psi' - psi)^T], m = E[phi], b = E[phi r]
    A^T u + alpha_q E[psi psi^T] w  = -(1 - g) E[psi_0]
    m^T u = 1

which is solved again for the rows that its solution makes positive, half a step at a time. Descent and ascent would take
tens of thousands of steps to get there; the layers below need far fewer.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bcrl.estimate import FloatArray
from bcrl.estimators.dice_learner import DiceLearner
from bcrl.networks import Head

_CHUNK = 8192
_NOISE_DRAWS = 4


@dataclass(frozen=True, eq=False)
class Features:
    """Last hidden layers on all rows, the absorbing state last.

    Attributes:
        phi: zeta's, (rows, d).
        move: g psi(s', pi) - psi(s, a), (rows, d).
        psi_square: E[psi psi^T], (d, d).
        starts: psi(s0, pi) of every start state, (n0, d).
        rewards: (rows,).
        weights: 1 / N for every logged row, and the absorbing state's weight, (rows,).
    """

    phi: FloatArray
    move: FloatArray
    psi_square: FloatArray
    starts: FloatArray
    rewards: FloatArray
    weights: FloatArray

    @property
    def start(self) -> FloatArray:
        return np.asarray(self.starts.mean(axis=0))


@dataclass(frozen=True, eq=False)
class Solution:
    """Where the Lagrangian's last layers come to rest.

    Attributes:
        zeta: of every transition, (N,).
        zeta_end: of the absorbing state.
        td: r + g Q(s', pi) - Q(s, a) of every transition, (N,), Q solving E[zeta-features * td] = 0; in the data's reward unit.
        start: Q(s0, pi) of every start state less their mean, (n0,).
    """

    zeta: FloatArray
    zeta_end: float
    td: FloatArray
    start: FloatArray


def solve_last_layers(
    learner: DiceLearner, given: tuple[FloatArray, float] | None = None, iterations: int = 40
) -> Solution:
    """The saddle point in the last layers; with a `given` zeta only the Q that its error depends on.

    Args:
        learner: trained layers below.
        given: zeta of every transition and of the absorbing state, kept as they are.
        iterations: solves at most, each for the rows that the one before made positive.
    """
    features = _features(learner)
    zeta = np.append(*given) if given is not None else _positive_saddle(features, learner, iterations)
    # What Q would have to be for its TD errors to be orthogonal to zeta's features: the error of the value is zeta times them.
    w = _primal(features, zeta > 0.0 if learner.rule.positive else np.ones(len(zeta), dtype=bool))
    td = features.rewards + features.move @ w
    return Solution(zeta[:-1], float(zeta[-1]), td[:-1], (features.starts - features.start) @ w)


def _positive_saddle(features: Features, learner: DiceLearner, iterations: int) -> FloatArray:
    active = np.ones(len(features.phi), dtype=bool)
    zeta = None
    for _ in range(iterations if learner.rule.positive else 1):
        solved = features.phi @ _saddle(features, active, learner)
        zeta = solved if zeta is None else 0.5 * (zeta + solved)
        if ((zeta > 0.0) == active).all():
            break
        active = zeta > 0.0
    assert zeta is not None
    return np.maximum(zeta, 0.0) if learner.rule.positive else zeta


def _primal(features: Features, active: NDArray[np.bool_]) -> FloatArray:
    weighted = features.phi * (features.weights * active)[:, None]
    square, cross = weighted.T @ features.phi, weighted.T @ features.move
    whitened = np.linalg.solve(square + _ridge(square), cross)
    normal = cross.T @ whitened
    return np.asarray(np.linalg.solve(normal + _ridge(normal), -whitened.T @ (weighted.T @ features.rewards)))


def _saddle(features: Features, active: NDArray[np.bool_], learner: DiceLearner) -> FloatArray:
    """u of the linear system on the active rows."""
    rule, phi = learner.rule, features.phi
    weighted = phi * (features.weights * active)[:, None]
    width, other = phi.shape[1], features.move.shape[1]
    square, cross, mean = weighted.T @ phi, weighted.T @ features.move, weighted.sum(axis=0)
    system, right = np.zeros((width + other + 1,) * 2), np.zeros(width + other + 1)
    system[:width, :width] = rule.alpha_zeta * square + _ridge(square)
    system[:width, width:-1] = -cross
    system[width:-1, :width] = cross.T
    # From N rows the flow is known up to 1 / N: asking for more drives Q to infinity where it cannot be kept.
    known = rule.alpha_q + 1.0 / len(phi)
    system[width:-1, width:-1] = known * features.psi_square + _ridge(features.psi_square)
    right[:width] = rule.alpha_r * weighted.T @ features.rewards
    right[width:-1] = -(1.0 - rule.discount) * features.start
    system[-1, -1] = 1.0
    if rule.normalised:
        system[:width, -1], system[-1, :width], system[-1, -1], right[-1] = mean, mean, 0.0, 1.0
    return np.asarray(np.linalg.solve(system, right)[:width])


def _ridge(square: FloatArray) -> FloatArray:
    return np.asarray(1e-6 * np.trace(square) / len(square) * np.eye(len(square)))


def _features(learner: DiceLearner) -> Features:
    data, discount = learner.data, learner.rule.discount
    generator = torch.Generator().manual_seed(0)
    q_net, zeta_net = learner.averaged.q_net, learner.averaged.zeta_net
    phis, moves, square = [], [], None
    with torch.no_grad():
        for first in range(0, len(data.rows), _CHUNK):
            part = slice(first, first + _CHUNK)
            rows, ended = data.rows[part], data.terminated[part].double()[:, None]
            psi = _last_hidden(q_net, data.z[rows], data.actions[part])
            there = _policy_hidden(learner, q_net, rows + 1, generator)
            move = discount * (1.0 - ended) * there - psi
            moves.append(torch.cat([move, discount * ended], dim=1).cpu().numpy())
            phis.append(_last_hidden(zeta_net, data.z[rows], data.actions[part]).cpu().numpy())
            square = psi.T @ psi if square is None else square + psi.T @ psi
        starts = _policy_hidden(learner, q_net, None, generator).cpu().numpy()
    assert square is not None
    count, weight = len(data.rows), learner.end_weight
    return Features(
        _with_end(np.concatenate(phis), np.zeros((count, 1)), 1.0),
        np.concatenate([np.concatenate(moves), _unit(moves[0].shape[1], discount - 1.0)]),
        _bordered((square / count).cpu().numpy(), weight),
        np.concatenate([starts, np.zeros((len(starts), 1))], axis=1),
        np.append(data.rewards.double().cpu().numpy(), 0.0),
        np.append(np.full(count, 1.0 / count), weight),
    )


def _with_end(rows: FloatArray, column: FloatArray, value: float) -> FloatArray:
    """Rows with one more column, and the absorbing state's row below: zeros and `value`."""
    wide = np.concatenate([rows, column], axis=1)
    return np.concatenate([wide, _unit(wide.shape[1], value)])


def _unit(width: int, value: float) -> FloatArray:
    row = np.zeros((1, width))
    row[0, -1] = value
    return row


def _bordered(square: FloatArray, corner: float) -> FloatArray:
    wide = np.zeros((len(square) + 1,) * 2)
    wide[:-1, :-1], wide[-1, -1] = square, corner
    return wide


def _last_hidden(net: Head, z: Tensor, actions: Tensor) -> Tensor:
    """Last hidden layer and a constant, (n, d)."""
    hidden = net.mlp[:-1](torch.cat([z, actions], dim=1))
    return nn.functional.pad(hidden, (0, 1), value=1.0).double()


def _policy_hidden(
    learner: DiceLearner, net: Head, rows: Tensor | None, generator: torch.Generator
) -> Tensor:
    """The average of psi over the policy's actions at these rows, or at the start states."""
    data = learner.data
    if rows is None:
        z, chosen, weights = data.start_z, data.start_chosen, data.start_weights
    else:
        z, chosen, weights = data.z[rows], data.chosen[rows], data.weights[rows]
    draws = _NOISE_DRAWS if data.noise > 0.0 else 1
    parts = []
    for k in range(chosen.shape[1]):
        for _ in range(draws):
            shake = data.noise * torch.randn(chosen[:, k].shape, generator=generator).to(z)
            parts.append(weights[:, k, None].double() / draws * _last_hidden(net, z, chosen[:, k] + shake))
    return torch.stack(parts).sum(dim=0)
