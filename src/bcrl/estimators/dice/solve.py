"""The Lagrangian's saddle point in the last layers, solved for on all data while the layers below stay as learned.

With Q = w^T psi and zeta = max(0, u^T phi) on the networks' last hidden layers (and a constant, and one unit each for the
absorbing state) the stationary point in w and lambda leaves a function of u alone,

    J(u) = alpha_zeta E[zeta^2] / 2 - alpha_r E[zeta r] + gap^T K^-1 gap / 2 + (E[zeta] - 1)^2 / (2 k)
    gap  = (1 - g) E[psi_0] + E[zeta (g psi' - psi)],   K = (alpha_q + 1 / N) E[psi psi^T]

a parabola wherever the set of rows with zeta > 0 stays the same. Each step goes towards the bottom of the parabola of the present
set, as far as J falls. Descent and ascent would take tens of thousands of steps to get there; the layers below need far fewer.

A zeta >= 0 on 128 features cannot keep the flow of every psi (gap = 0), and what it misses along Q goes into the value,
divided by 1 - g. `keep_flow` therefore adds the smallest phi^T v (in mean square) that closes the gap. The dual read-out is then
also the Lagrangian one, E[Q(s0, pi)] + E[zeta (r + g Q' - Q)] / (1 - g), with Q by least squares on psi and instruments
phi: its error is the product of zeta's error and Q's.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bcrl.estimate import FloatArray
from bcrl.estimators.dice.learner import DiceLearner, DiceRule
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
        td: r + g Q(s', pi) - Q(s, a) of every transition, (N,), Q solving E[phi td] = 0 by least squares; rewards standardised.
        start: Q(s0, pi) of every start state less their mean, (n0,).
        repair: root mean square of what closed the flow's gap, as a share of zeta's own.
    """

    zeta: FloatArray
    zeta_end: float
    td: FloatArray
    start: FloatArray
    repair: float


def solve_last_layers(
    learner: DiceLearner, given: tuple[FloatArray, float] | None = None, *, keep_flow: bool = True
) -> Solution:
    """The saddle point in the last layers; with a `given` zeta only the Q that its error depends on.

    Args:
        learner: trained layers below.
        given: zeta of every transition and of the absorbing state, kept as they are.
        keep_flow: close the gap in the flow that the saddle point leaves.
    """
    features = _features(learner)
    zeta = np.append(*given) if given is not None else _saddle_zeta(features, learner.rule)
    w, closing = _primal(features, zeta, learner.rule.discount)
    repaired = zeta + features.phi @ closing if keep_flow and given is None else zeta
    td = features.rewards + features.move @ w
    return Solution(
        repaired[:-1],
        float(repaired[-1]),
        td[:-1],
        (features.starts - features.start) @ w,
        float(np.sqrt(np.square(repaired - zeta).mean() / np.square(zeta).mean())),
    )


def _primal(features: Features, zeta: FloatArray, discount: float) -> tuple[FloatArray, FloatArray]:
    """w of the Q whose TD errors are orthogonal to phi, and v of the phi^T v that closes zeta's gap in the flow.

    Both come from the same normal equations, which is why the two read-outs agree.
    """
    weighted = features.phi * features.weights[:, None]
    square, cross = weighted.T @ features.phi, weighted.T @ features.move
    whitened = np.linalg.solve(square + _ridge(square), cross)
    normal = cross.T @ whitened
    normal += _ridge(normal)
    w = np.linalg.solve(normal, -whitened.T @ (weighted.T @ features.rewards))
    gap = (1.0 - discount) * features.start + features.move.T @ (features.weights * zeta)
    return np.asarray(w), np.asarray(-whitened @ np.linalg.solve(normal, gap))


def _saddle_zeta(features: Features, rule: DiceRule, iterations: int = 40) -> FloatArray:
    """zeta at the bottom of J; without positivity one step is exact."""
    bowl = _Bowl.of(features, rule)
    u = bowl.bottom(np.ones(len(features.phi), dtype=bool))
    if not rule.positive:
        return np.asarray(features.phi @ u)
    height = bowl.height(u)
    for _ in range(iterations):
        step, share = bowl.bottom(features.phi @ u > 0.0) - u, 1.0
        while share > 1e-4 and bowl.height(u + share * step) >= height:
            share *= 0.5
        lower = bowl.height(u + share * step)
        if not lower < height - _FLAT * abs(height):
            break
        u, height = u + share * step, lower
    return np.asarray(np.maximum(features.phi @ u, 0.0))


@dataclass(frozen=True, eq=False)
class _Bowl:
    """J of the module's docstring.

    Attributes:
        features, rule: what J is made of.
        stiff: K^-1, (d, d).
        norm: 1 / k; 0 where nothing keeps the mean of zeta at 1.
    """

    features: Features
    rule: DiceRule
    stiff: FloatArray
    norm: float

    @classmethod
    def of(cls, features: Features, rule: DiceRule) -> "_Bowl":
        # From N rows the flow is known up to 1 / N: asking for more drives Q to infinity where it cannot be kept.
        known = rule.alpha_q + 1.0 / len(features.phi)
        loose = known * features.psi_square + _ridge(features.psi_square)
        return cls(
            features,
            rule,
            np.asarray(np.linalg.inv(loose), dtype=np.float64),
            1e3 / known if rule.normalised else 0.0,
        )

    def height(self, u: FloatArray) -> float:
        features, rule = self.features, self.rule
        zeta = np.maximum(features.phi @ u, 0.0)
        mass = features.weights * zeta
        gap = (1.0 - rule.discount) * features.start + features.move.T @ mass
        own = 0.5 * rule.alpha_zeta * (mass @ zeta) - rule.alpha_r * (mass @ features.rewards)
        return float(own + 0.5 * gap @ self.stiff @ gap + 0.5 * self.norm * (mass.sum() - 1.0) ** 2)

    def bottom(self, active: NDArray[np.bool_]) -> FloatArray:
        """u of the lowest point if zeta were u^T phi on the active rows and 0 elsewhere."""
        features, rule = self.features, self.rule
        phi = features.phi[active]
        weighted = phi * features.weights[active, None]
        square, cross, mean = weighted.T @ phi, weighted.T @ features.move[active], weighted.sum(axis=0)
        curved = rule.alpha_zeta * square + _ridge(square) + cross @ self.stiff @ cross.T
        curved += self.norm * np.outer(mean, mean)
        pull = rule.alpha_r * weighted.T @ features.rewards[active] + self.norm * mean
        pull -= (1.0 - rule.discount) * cross @ self.stiff @ features.start
        return np.asarray(np.linalg.solve(curved, pull))


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


def _last_hidden(net: HeadNet, z: Tensor, actions: Tensor) -> Tensor:
    """Last hidden layer and a constant, (n, d)."""
    hidden = net.mlp[:-1](torch.cat([z, actions], dim=1))
    return nn.functional.pad(hidden, (0, 1), value=1.0).double()


def _policy_hidden(
    learner: DiceLearner, net: HeadNet, rows: Tensor | None, generator: torch.Generator
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
