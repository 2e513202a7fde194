"""The Lagrangian's saddle point in the last layers, solved on all data; the layers below stay as learned.

With Q = w^T psi and zeta = max(0, u^T phi) on the networks' last hidden layers (and a constant, and one
unit each for the absorbing state) the stationary point in w and lambda leaves a function of u alone,

    J(u) = alpha_zeta E[zeta^2] / 2 - alpha_r E[zeta r] + gap^T K^-1 gap / 2 + (E[zeta] - 1)^2 / (2 k)
    gap  = (1 - g) E[psi_0] + E[zeta (g psi' - psi)],   K = (alpha_q + 1 / N) E[psi psi^T]

a parabola wherever the set of rows with zeta > 0 stays the same. Each step goes towards the bottom of the
parabola of the present set, as far as J falls. Descent and ascent would take tens of thousands of steps to
get there; the layers below need far fewer.

A zeta >= 0 on 128 features cannot keep the flow of every psi (gap = 0), and what it misses along Q goes
into the value, divided by 1 - g. `keep_flow` therefore adds the smallest phi^T v (in mean square) that
closes the gap. The dual read-out is then also the Lagrangian one, E[Q(s0, pi)] + E[zeta (r + g Q' - Q)] /
(1 - g), with Q by least squares on psi and instruments phi: its error is the product of zeta's error and
Q's.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bcrl.estimate import FloatArray
from bcrl.estimators.dice.data import DiceData
from bcrl.estimators.dice.lagrangian import Critics, Lagrangian
from bcrl.networks import HeadNet

_CHUNK = 8192
_NOISE_DRAWS = 4
_FLAT = 1e-6


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
        discount: g.
    """

    phi: FloatArray
    move: FloatArray
    psi_square: FloatArray
    starts: FloatArray
    rewards: FloatArray
    weights: FloatArray
    discount: float

    @property
    def start(self) -> FloatArray:
        return np.asarray(self.starts.mean(axis=0))

    def gap(self, zeta: FloatArray) -> FloatArray:
        """How much flow is missing under these ratios, for every psi, (d,)."""
        inflow = (1.0 - self.discount) * self.start
        return np.asarray(inflow + self.move.T @ (self.weights * zeta))


@dataclass(frozen=True, eq=False)
class Solution:
    """The solution for the Lagrangian's last layers.

    Attributes:
        zeta: of every transition, (N,).
        zeta_end: of the absorbing state.
        end_weight: weight of the absorbing state beside the transitions' mean.
        td: r + g Q(s', pi) - Q(s, a) of every transition, (N,), rewards standardised; Q solves E[phi td] = 0
            by least squares.
        start: Q(s0, pi) of every start state less their mean, (n0,).
        repair: root mean square of what closed the flow's gap, as a share of zeta's own.
    """

    zeta: FloatArray
    zeta_end: float
    end_weight: float
    td: FloatArray
    start: FloatArray
    repair: float

    @property
    def end_mass(self) -> float:
        """Share of the absorbing state, in units of the transitions' mean."""
        return self.end_weight * self.zeta_end

    @property
    def mean(self) -> float:
        """E[zeta]; 1 for a ratio of distributions."""
        return float(self.zeta.mean()) + self.end_mass


def solve_last_layers(
    critics: Critics, data: DiceData, lagrangian: Lagrangian, *, keep_flow: bool = True
) -> Solution:
    """The saddle point in the last layers; `keep_flow` closes the gap in the flow that it leaves."""
    features = features_of(critics, data)
    zeta = _saddle_zeta(features, lagrangian)
    w, closing = solve_q(features, zeta)
    return _solution(features, zeta, zeta + features.phi @ closing if keep_flow else zeta, w)


def keep_zeta(critics: Critics, data: DiceData) -> Solution:
    """zeta as it was trained, with the Q in the last layers that its error depends on."""
    features, zeta = features_of(critics, data), _trained_zeta(critics, data)
    return _solution(features, zeta, zeta, solve_q(features, zeta)[0])


def _solution(features: Features, before: FloatArray, zeta: FloatArray, w: FloatArray) -> Solution:
    td = features.rewards + features.move @ w
    return Solution(
        zeta=zeta[:-1],
        zeta_end=float(zeta[-1]),
        end_weight=float(features.weights[-1]),
        td=td[:-1],
        start=(features.starts - features.start) @ w,
        repair=float(np.sqrt(np.square(zeta - before).mean() / np.square(before).mean())),
    )


def _trained_zeta(critics: Critics, data: DiceData) -> FloatArray:
    """zeta of every transition by the networks, the absorbing state's last, (N + 1,)."""
    with torch.no_grad():
        parts = [
            critics.zeta(data.z[data.rows[part]], data.actions[part]).cpu().numpy()
            for part in _slices(len(data.rows), 65536)
        ]
        return np.append(np.concatenate(parts).astype(np.float64), float(critics.zeta_at_end()))


def solve_q(features: Features, zeta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """w of the Q whose TD errors are orthogonal to phi, and v of the phi^T v that closes zeta's gap.

    Both come from the same normal equations, which is why the two read-outs agree.
    """
    weighted = features.phi * features.weights[:, None]
    square, cross = weighted.T @ features.phi, weighted.T @ features.move
    whitened = np.linalg.solve(square + _ridge(square), cross)
    normal = cross.T @ whitened
    normal += _ridge(normal)
    w = np.linalg.solve(normal, -whitened.T @ (weighted.T @ features.rewards))
    return np.asarray(w), np.asarray(-whitened @ np.linalg.solve(normal, features.gap(zeta)))


def _saddle_zeta(features: Features, lagrangian: Lagrangian, iterations: int = 40) -> FloatArray:
    """zeta at the bottom of J; without positivity one step is exact."""
    j = ReducedLagrangian.of(features, lagrangian)
    u = j.bottom(np.ones(len(features.phi), dtype=bool))
    if not lagrangian.positive:
        return np.asarray(features.phi @ u)
    height = j.height(u)
    for _ in range(iterations):
        step, share = j.bottom(features.phi @ u > 0.0) - u, 1.0
        while share > 1e-4 and j.height(u + share * step) >= height:
            share *= 0.5
        lower = j.height(u + share * step)
        if not lower < height - _FLAT * abs(height):
            break
        u, height = u + share * step, lower
    return np.asarray(np.maximum(features.phi @ u, 0.0))


@dataclass(frozen=True, eq=False)
class ReducedLagrangian:
    """J of the module's docstring.

    Attributes:
        features, lagrangian: what J is made of.
        k_inverse: K^-1, (d, d).
        norm: 1 / k; 0 where nothing keeps the mean of zeta at 1.
    """

    features: Features
    lagrangian: Lagrangian
    k_inverse: FloatArray
    norm: float

    @classmethod
    def of(cls, features: Features, lagrangian: Lagrangian) -> "ReducedLagrangian":
        # From N rows the flow is known up to 1 / N: asking for more drives Q to infinity where it fails.
        known = lagrangian.alpha_q + 1.0 / len(features.phi)
        k = known * features.psi_square + _ridge(features.psi_square)
        inverse = np.asarray(np.linalg.inv(k), dtype=np.float64)
        return cls(features, lagrangian, inverse, 1e3 / known if lagrangian.normalised else 0.0)

    def height(self, u: FloatArray) -> float:
        """J(u)."""
        features, alphas = self.features, self.lagrangian
        zeta = np.maximum(features.phi @ u, 0.0)
        mass, gap = features.weights * zeta, features.gap(zeta)
        terms = 0.5 * alphas.alpha_zeta * (mass @ zeta) - alphas.alpha_r * (mass @ features.rewards)
        return float(terms + 0.5 * gap @ self.k_inverse @ gap + 0.5 * self.norm * (mass.sum() - 1.0) ** 2)

    def bottom(self, active: NDArray[np.bool_]) -> FloatArray:
        """u of the lowest point if zeta were u^T phi on the active rows and 0 elsewhere."""
        features, alphas = self.features, self.lagrangian
        phi = features.phi[active]
        weighted = phi * features.weights[active, None]
        square, cross, mean = weighted.T @ phi, weighted.T @ features.move[active], weighted.sum(axis=0)
        curvature = alphas.alpha_zeta * square + _ridge(square) + cross @ self.k_inverse @ cross.T
        curvature += self.norm * np.outer(mean, mean)
        pull = alphas.alpha_r * weighted.T @ features.rewards[active] + self.norm * mean
        pull -= (1.0 - features.discount) * cross @ self.k_inverse @ features.start
        return np.asarray(np.linalg.solve(curvature, pull))


def _ridge(square: FloatArray) -> FloatArray:
    return np.asarray(1e-6 * np.trace(square) / len(square) * np.eye(len(square)))


def features_of(critics: Critics, data: DiceData) -> Features:
    """The critics' last hidden layers on all data, with one more column that is the absorbing state's own."""
    discount, generator = data.discount, torch.Generator().manual_seed(0)
    psi_of, phi_of = (partial(_last_hidden, net) for net in (critics.q_net, critics.zeta_net))
    phis, moves, square = [], [], None
    with torch.no_grad():
        for part in _slices(len(data.rows), _CHUNK):
            rows, ended = data.rows[part], data.terminated[part].double()[:, None]
            psi = psi_of(data.z[rows], data.actions[part])
            there = data.average(psi_of, data.policy.take(rows + 1), generator, _NOISE_DRAWS)
            move = discount * (1.0 - ended) * there - psi
            moves.append(torch.cat([move, discount * ended], dim=1).cpu().numpy())
            phis.append(phi_of(data.z[rows], data.actions[part]).cpu().numpy())
            square = psi.T @ psi if square is None else square + psi.T @ psi
        starts = data.average(psi_of, data.start, generator, _NOISE_DRAWS).cpu().numpy()
    assert square is not None
    count, weight = len(data.rows), data.end_weight
    all_phi = np.pad(np.concatenate(phis), ((0, 1), (0, 1)))
    all_moves = np.pad(np.concatenate(moves), ((0, 1), (0, 0)))
    psi_square = np.pad((square / count).cpu().numpy(), (0, 1))
    all_phi[-1, -1], all_moves[-1, -1], psi_square[-1, -1] = 1.0, discount - 1.0, weight
    return Features(
        phi=all_phi,
        move=all_moves,
        psi_square=psi_square,
        starts=np.pad(starts, ((0, 0), (0, 1))),
        rewards=np.append(data.rewards.double().cpu().numpy(), 0.0),
        weights=np.append(np.full(count, 1.0 / count), weight),
        discount=discount,
    )


def _last_hidden(net: HeadNet, z: Tensor, actions: Tensor) -> Tensor:
    """Last hidden layer and a constant, (n, d)."""
    hidden = net.mlp[:-1](torch.cat([z, actions], dim=1))
    return nn.functional.pad(hidden, (0, 1), value=1.0).double()


def _slices(count: int, size: int) -> list[slice]:
    return [slice(first, first + size) for first in range(0, count, size)]
