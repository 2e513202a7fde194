"""Cheap independent views of a question: other features, and a chain of nearest neighbours.

Each view answers the question on its own terms in about a second, and says how often it expects the policy at
every transition: weights w_i with value = sum_i w_i r_i, in units of steps (they add up to the discounted
lifetime). With TD errors delta of any Q whose value is V^,

    V = V^ + sum_i w_i delta_i

holds exactly for the true weights. So a view says what it would correct in a method's answer, and a view
whose Q is corrected by another's weights is wrong only by the product of both errors; the median of all such
pairs is the `consensus`.

Linear views solve (Sigma - discount C + ridge I) theta = b (LSTD with a ridge, which always has an answer);
w_i = phi_i^T (Sigma - discount C + ridge I)^{-T} x0 / N. The chain moves from (s', pi(s')) to the nearest
logged transitions; its weights are those of a real, non-negative occupancy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bcrl import salts
from bcrl.estimate import FloatArray
from bcrl.inference.contrast import discounted_steps, returns_to_go
from bcrl.inference.inputs import Inputs

CHAIN_ROWS = 5_000  # transitions that the chain looks at
# Chosen on design families of the proving ground: with 160 cosines and a ridge of 1e-3 the error of a view on
# covered logs of cartpole_swingup was 27 % in the median, with these 1 to 3 %.
COSINES, RIDGE, NEIGHBOURS = 400, 1e-4, 3
_LARGER = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)  # ridges of a view whose value no rewards allow
_SLACK = 0.1  # of what rewards allow, that a view may say more
WIDTHS = (0.5, 0.8)  # of the cosines, in median distances
DEVIATION_WIDTHS = ((0.5, 1.5), (0.4, 0.8))
_STATE_COSINES, _SLOPES = 100, 240  # of a deviation view: a width, and for all columns of an action together
_POLYNOMIAL = 12  # inputs of the quadratic view; more are projected onto so many
_LEAST = 10  # transitions for an answer about the logging policy
_CHAIN_STEPS = 1_000  # that a chain is followed for
_NEAR = 0.05  # of the median distance between transitions
_TIE, _STRIDE = 1e-5, 7919  # of the mean square, that tells equally near ones apart; places between two draws
_LEFT = 1e-3  # of the discounted future, where a chain stops


@dataclass(frozen=True, eq=False)
class View:
    """One view's answer.

    Attributes:
        name: what it is.
        value: the policy's value.
        weights: expected visits of the policy to each transition of `Inputs`, discounted, shape (n,).
        td: TD errors of its own Q there, shape (n,); None for views without a Q, and with a horizon.
        per_start: its value at each start, shape (n0,); None for views without a Q.
        parts: what each transition adds to the sampling error of the value, shape (n,); likewise.
    """

    name: str
    value: float
    weights: FloatArray
    td: FloatArray | None = None
    per_start: FloatArray | None = None
    parts: FloatArray | None = None


def consensus(views: Sequence[View]) -> float:
    """The median of every view's value as each other linear view would correct it; of the values alone where
    there are no TD errors (with a horizon).
    """
    linear = [view for view in views if view.per_start is not None and math.isfinite(view.value)]
    pairs = [
        one.value + float(other.weights @ one.td)
        for one in linear
        for other in linear
        if one.td is not None and other is not one
    ]
    return float(np.median(pairs or [view.value for view in linear])) if linear else math.nan


class Features(Protocol):
    """phi(s, a), for logged actions and in the mean over a policy's."""

    def logged(self, inputs: Inputs) -> FloatArray: ...

    def expected(self, points: FloatArray, weights: FloatArray) -> FloatArray: ...


@dataclass(frozen=True, eq=False)
class Cosines:
    """Random Fourier features (Rahimi and Recht, 2007) and a constant."""

    directions: NDArray[np.float32]
    phases: NDArray[np.float32]

    @classmethod
    def of(
        cls, points: FloatArray, widths: Sequence[float], count: int, generator: np.random.Generator
    ) -> "Cosines":
        """`count` of each width, in median distances between the points."""
        distance = median_distance(points, generator)
        drawn = [generator.standard_normal((points.shape[1], count)) / (width * distance) for width in widths]
        phases = generator.uniform(0.0, 2.0 * np.pi, count * len(widths))
        return cls(np.concatenate(drawn, axis=1).astype(np.float32), phases.astype(np.float32))

    def __call__(self, points: FloatArray) -> FloatArray:
        count = len(self.phases)
        phi = np.empty((len(points), count + 1))
        waves = np.cos(points.astype(np.float32) @ self.directions + self.phases)
        phi[:, :-1] = waves * np.float32(math.sqrt(2.0 / count))
        phi[:, -1] = 1.0
        return phi

    def logged(self, inputs: Inputs) -> FloatArray:
        return self(inputs.here)

    def expected(self, points: FloatArray, weights: FloatArray) -> FloatArray:
        return _over_actions(self, points, weights)


def median_distance(points: FloatArray, generator: np.random.Generator) -> float:
    """Median distance between random pairs of rows; 1 where all rows are the same."""
    left, right = generator.integers(0, len(points), size=(2, 2_000))
    return float(np.median(np.linalg.norm(points[left] - points[right], axis=1))) or 1.0


@dataclass(frozen=True, eq=False)
class Quadratic:
    """1, x, x x^T of the inputs, or of their leading directions where there are many."""

    directions: FloatArray

    @classmethod
    def of(cls, points: FloatArray) -> "Quadratic":
        if points.shape[1] <= _POLYNOMIAL:
            return cls(np.eye(points.shape[1]))
        return cls(np.linalg.svd(points - points.mean(axis=0), full_matrices=False)[2][:_POLYNOMIAL].T)

    def __call__(self, points: FloatArray) -> FloatArray:
        z = np.clip(points @ self.directions, -8.0, 8.0)
        upper = np.triu_indices(z.shape[1])
        return np.concatenate([np.ones((len(z), 1)), z, z[:, upper[0]] * z[:, upper[1]] / 4.0], axis=1)

    def logged(self, inputs: Inputs) -> FloatArray:
        return self(inputs.here)

    def expected(self, points: FloatArray, weights: FloatArray) -> FloatArray:
        return _over_actions(self, points, weights)


def _over_actions(features: Cosines | Quadratic, points: FloatArray, weights: FloatArray) -> FloatArray:
    """Features averaged over actions, shape (n, d), one action at a time."""
    total = weights[:, :1] * features(points[:, 0])
    for k in range(1, points.shape[1]):
        total += weights[:, k : k + 1] * features(points[:, k])
    return np.asarray(total)


@dataclass(frozen=True, eq=False)
class Deviations:
    """f(s), and g(s) times how the action deviates from the policy's: d = a - pi(s), and d^2.

    Where the policy acts, d is 0 and Q is f(s) alone, so that nothing smooths the effect of an action over
    the logged noise around it. Discrete actions have no squares: d holds one column an action.

    Attributes:
        levels, slopes: f and g.
        scale: of d in the log, shape (action columns,).
        width: columns of the state.
        squares: whether d^2 counts.
    """

    levels: Cosines
    slopes: Cosines
    scale: FloatArray
    width: int
    squares: bool

    @classmethod
    def of(cls, inputs: Inputs, widths: Sequence[float], generator: np.random.Generator) -> "Deviations":
        width, squares = inputs.state_width, not inputs.discrete
        states, columns = inputs.here[:, :width], inputs.here.shape[1] - width
        off = inputs.here[:, width:] - _mean_action(inputs.acting, inputs.acting_weights, width)
        scale = np.maximum(off.std(axis=0), 1e-3) if squares else np.ones(columns)
        slopes = max(_SLOPES // (columns * (2 if squares else 1) * len(widths)), 4)
        return cls(
            Cosines.of(states, widths, _STATE_COSINES, generator),
            Cosines.of(states, widths, slopes, generator),
            scale,
            width,
            squares,
        )

    def _features(self, states: FloatArray, d: FloatArray, squared: FloatArray) -> FloatArray:
        columns = np.concatenate([d, squared / 2.0], axis=1) if self.squares else d
        slopes = self.slopes(states)
        return np.concatenate(
            [self.levels(states), *(slopes * column[:, None] for column in columns.T)], axis=1
        )

    def _scaled(self, deviations: FloatArray) -> FloatArray:
        return np.clip(deviations / self.scale, -6.0, 6.0)

    def logged(self, inputs: Inputs) -> FloatArray:
        policy = _mean_action(inputs.acting, inputs.acting_weights, self.width)
        d = self._scaled(inputs.here[:, self.width :] - policy)
        return self._features(inputs.here[:, : self.width], d, d**2)

    def expected(self, points: FloatArray, weights: FloatArray) -> FloatArray:
        """d is 0 in the mean; its square is not."""
        mean = _mean_action(points, weights, self.width)
        d = self._scaled(points[:, :, self.width :] - mean[:, None])
        squared = np.asarray(np.einsum("nmk,nm->nk", d**2, weights))
        return self._features(points[:, 0, : self.width], np.zeros_like(mean), squared)


def _mean_action(points: FloatArray, weights: FloatArray, width: int) -> FloatArray:
    return np.asarray(np.einsum("nmk,nm->nk", points[:, :, width:], weights))


def linear_views(
    inputs: Inputs, discount: float, horizon: int | None, generator: np.random.Generator
) -> list[View]:
    """LSTD with a ridge on five kinds of features."""
    made: dict[str, Features] = {
        f"cosines {width:g}": Cosines.of(inputs.here, [width], COSINES, generator) for width in WIDTHS
    }
    for widths in DEVIATION_WIDTHS:
        made[f"deviations {widths[0]:g}"] = Deviations.of(inputs, widths, generator)
    made["quadratic"] = Quadratic.of(inputs.here)
    return [linear_view(name, features, inputs, discount, horizon) for name, features in made.items()]


def linear_view(name: str, features: Features, inputs: Inputs, discount: float, horizon: int | None) -> View:
    """LSTD with a ridge on these features (K steps of regression where there is a horizon).

    Where its value is more than rewards allow, the ridge grows until the iteration contracts (spectral radius
    at most 1) and the value is possible; on logs that cover the policy with few rows the small ridge alone
    said -187,196 for 46. The largest ridge answers where none does both.
    """
    phi = features.logged(inputs)
    ahead = features.expected(inputs.following, inputs.following_weights) * ~inputs.terminated[:, None]
    starts = features.expected(inputs.starts, inputs.start_weights)
    sigma, cross = phi.T @ phi / len(phi), phi.T @ ahead / len(phi)
    low, high = allowed(inputs, discount, horizon)
    ridge = RIDGE
    for ridge in (RIDGE, *_LARGER):
        bounded = sigma + ridge * np.trace(sigma) / len(sigma) * np.eye(len(sigma))
        solved = _Solved(name, phi, ahead, starts, bounded, cross, inputs.rewards, discount, horizon)
        if low <= solved.value <= high and (ridge == RIDGE or solved.contracts):
            break
    return solved.view()


def allowed(inputs: Inputs, discount: float, horizon: int | None) -> tuple[float, float]:
    """The least and the most that a policy could earn if every reward were the log's lowest or highest, and a
    tenth of that range more on both sides."""
    low, high = float(inputs.rewards.min()), float(inputs.rewards.max())
    if inputs.terminated.any():  # after an end nothing is earned
        low, high = min(low, 0.0), max(high, 0.0)
    steps = discounted_steps(discount, horizon)
    slack = _SLACK * steps * max(high - low, abs(high), abs(low))
    return steps * low - slack, steps * high + slack


@dataclass(frozen=True, eq=False)
class _Solved:
    """One linear view with one ridge: moments in, theta and the answer out."""

    name: str
    phi: FloatArray
    ahead: FloatArray
    starts: FloatArray
    sigma: FloatArray
    cross: FloatArray
    rewards: FloatArray
    discount: float
    horizon: int | None

    @cached_property
    def x0(self) -> FloatArray:
        return np.asarray(self.starts.mean(axis=0))

    @cached_property
    def step(self) -> FloatArray:
        """theta_{k+1} = first + step theta_k."""
        return np.asarray(self.discount * np.linalg.solve(self.sigma, self.cross), dtype=np.float64)

    @cached_property
    def first(self) -> FloatArray:
        b = self.phi.T @ self.rewards / len(self.phi)
        return np.asarray(np.linalg.solve(self.sigma, b), dtype=np.float64)

    @cached_property
    def powers(self) -> FloatArray:
        assert self.horizon is not None
        return _power_sum(self.step, self.horizon)

    @cached_property
    def theta(self) -> FloatArray:
        if self.horizon is None:
            b = self.phi.T @ self.rewards / len(self.phi)
            return np.asarray(np.linalg.solve(self.sigma - self.discount * self.cross, b))
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(self.powers @ self.first)

    @property
    def value(self) -> float:
        return float(self.x0 @ self.theta)

    @property
    def contracts(self) -> bool:
        return bool(np.abs(np.linalg.eigvals(self.step)).max() <= 1.0)

    def view(self) -> View:
        count, theta = len(self.phi), self.theta
        if self.horizon is None:
            dual = np.linalg.solve((self.sigma - self.discount * self.cross).T, self.x0)
            td = self.rewards + self.discount * (self.ahead @ theta) - self.phi @ theta
            weights = self.phi @ dual / count
            return View(self.name, self.value, weights, td, self.starts @ theta, weights * td)
        parts = _parts_with_horizon(
            self.phi,
            self.ahead,
            self.sigma,
            self.step,
            self.first,
            self.x0,
            self.rewards,
            self.discount,
            self.horizon,
        )
        with np.errstate(over="ignore", invalid="ignore"):
            dual = np.linalg.solve(self.sigma, self.powers.T @ self.x0)
            return View(self.name, self.value, self.phi @ dual / count, None, self.starts @ theta, parts)


def _parts_with_horizon(
    phi: FloatArray,
    ahead: FloatArray,
    sigma: FloatArray,
    step: FloatArray,
    first: FloatArray,
    x0: FloatArray,
    rewards: FloatArray,
    discount: float,
    horizon: int,
    most: int = 60,
) -> FloatArray:
    """Each transition's part of the error of theta_K, theta_{j+1} = first + step theta_j.

        sum_k (x0^T step^k Sigma^-1 phi_i) (r_i + discount phi'_i^T theta_j - phi_i^T theta_{j+1}) / N

    with j = K - 1 - k.

    Of a long horizon every few steps are looked at, and stand for those between.
    """
    thetas, duals = [np.zeros_like(first)], [x0]
    with np.errstate(over="ignore", invalid="ignore"):  # a view that explodes is dropped by its value
        for _ in range(min(horizon, 5_000)):  # by then both have come to rest
            thetas.append(first + step @ thetas[-1])
            duals.append(step.T @ duals[-1])
    looked = np.unique(np.linspace(0, len(thetas) - 2, min(most, len(thetas) - 1)).astype(np.int64))
    parts = np.zeros(len(phi))
    for place, k in enumerate(looked):
        stands_for = (looked[place + 1] if place + 1 < len(looked) else len(thetas) - 1) - k
        j = len(thetas) - 2 - k
        with np.errstate(over="ignore", invalid="ignore"):
            td = rewards + discount * (ahead @ thetas[j]) - phi @ thetas[j + 1]
            parts += stands_for * (phi @ np.linalg.solve(sigma, duals[k])) * td / len(phi)
    return parts


def _power_sum(matrix: FloatArray, count: int) -> FloatArray:
    """I + A + ... + A^(count - 1), by doubling; not finite where it grows beyond all numbers."""
    total, power = np.zeros_like(matrix), np.eye(len(matrix))
    with np.errstate(over="ignore", invalid="ignore"):
        for bit in bin(count)[2:]:
            total, power = total + power @ total, power @ power
            if bit == "1":
                total, power = total + power, power @ matrix
    return total


def logged_returns(inputs: Inputs, discount: float, generator: np.random.Generator) -> FloatArray | None:
    """Discounted returns to go of every transition; records that were cut are closed by the logging policy's
    own Q (LSTD on transitions whose next action is logged). None where there are too few of those.
    """
    known = inputs.has_after | inputs.terminated
    if known.sum() < _LEAST or not inputs.has_after.any():
        return None
    features = Cosines.of(inputs.here, [1.0], COSINES // 2, generator)
    phi, after = features(inputs.here), np.zeros((len(inputs.here), COSINES // 2 + 1))
    inside = inputs.has_after & ~inputs.terminated
    after[inside] = features(inputs.after[inside])
    here = phi[known]
    sigma = here.T @ here / len(here)
    sigma += 10.0 * RIDGE * np.trace(sigma) / len(sigma) * np.eye(len(sigma))
    system = sigma - discount * here.T @ after[known] / len(here)
    theta = np.linalg.solve(system, here.T @ inputs.rewards[known] / len(here))
    return closed_returns(inputs, np.asarray(phi @ theta), discount)


def closed_returns(inputs: Inputs, q: FloatArray, discount: float) -> FloatArray:
    """Discounted return to go of every transition; a cut record is closed with `q` of its last one."""
    last = np.flatnonzero(~inputs.has_after)
    closing = np.where(inputs.terminated[last], inputs.rewards[last], q[last])
    return returns_to_go(inputs.rewards, last, np.diff(last, prepend=-1), closing, discount)


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
    return View("chain", float(weights @ inputs.rewards), weights), novelty


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
    near = np.empty((len(flat), min(NEIGHBOURS, len(among))), dtype=np.int64)
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
