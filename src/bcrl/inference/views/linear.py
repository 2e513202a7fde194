"""Cheap independent views of a question: linear ones on features of their own; chain.py has one without any.

Each view answers the question on its own terms in about a second, and says how often it expects the policy at
every transition: weights w_i with value = sum_i w_i r_i, in units of steps (they add up to the discounted
lifetime). With TD errors delta of any Q whose value is V^,

    V = V^ + sum_i w_i delta_i

holds exactly for the true weights. So a view says what it would correct in a method's answer, and a view
whose Q is corrected by another's weights is wrong only by the product of both errors; the median of all such
pairs is the `consensus`.

Linear views solve (Sigma - discount C + ridge I) theta = b (LSTD with a ridge, which always has an answer);
w_i = phi_i^T (Sigma - discount C + ridge I)^{-T} x0 / N.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bcrl.estimate import FloatArray
from bcrl.inference.contrast import discounted_steps, returns_to_go
from bcrl.inference.inputs import Inputs
from bcrl.inference.views.features import Cosines, Deviations, Features, Quadratic

# Chosen on design families of the proving ground: with 160 cosines and a ridge of 1e-3 the error of a view on
# covered logs of cartpole_swingup was 27 % in the median, with these 1 to 3 %.
COSINES, RIDGE = 400, 1e-4
_LARGER = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)  # ridges of a view whose value no rewards allow
_SLACK = 0.1  # of what rewards allow, that a view may say more
WIDTHS = (0.5, 0.8, 1.2)  # of the cosines, in median distances
DEVIATION_WIDTHS = ((0.5, 1.5), (0.4, 0.8))
_LEAST = 10  # transitions for an answer about the logging policy
_LOOKED = 60  # most steps of a long horizon that are looked at
_ROUNDS, _GRADIENTS = 2, 4_000  # of learning a metric; steps at which a gradient is taken
_EVEN = 0.05  # of a metric that treats all directions alike


@dataclass(frozen=True, eq=False)
class Linear:
    """What a linear view knows of states that the log does not hold.

    Attributes:
        features: phi.
        theta: Q is theta^T phi.
        system: Sigma - discount C + ridge I; None with a horizon.
        root: E with theta's error covariance E E^T, shape (d, at most d); None with a horizon.
        parts: what each transition adds to the sampling error of the value, shape (n,).
    """

    features: Features
    theta: FloatArray
    parts: FloatArray
    system: FloatArray | None
    root: FloatArray | None


@dataclass(frozen=True, eq=False)
class View:
    """One view's answer.

    Attributes:
        name: what it is.
        value: the policy's value.
        weights: expected visits of the policy to each transition of `Inputs`, discounted, shape (n,).
        td: TD errors of its own Q there, shape (n,); None for views without a Q, and with a horizon.
        per_start: its value at each start, shape (n0,); None for views without a Q.
        linear: what other states need, where it was asked for.
    """

    name: str
    value: float
    weights: FloatArray
    td: FloatArray | None
    per_start: FloatArray | None
    linear: Linear | None = None


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


def linear_views(
    inputs: Inputs,
    discount: float,
    horizon: int | None,
    generator: np.random.Generator,
    units: NDArray[np.int64] | None = None,
) -> list[View]:
    """LSTD with a ridge on six kinds of features, along the directions that Q follows.

    With `units`, each transition's independent unit, every view keeps what other states need.
    """
    metric = learned_metric(inputs, discount, horizon, generator)
    made: dict[str, Features] = {
        f"cosines {width:g}": Cosines.of(inputs.here, [width], COSINES, generator, metric) for width in WIDTHS
    }
    for widths in DEVIATION_WIDTHS:
        made[f"deviations {widths[0]:g}"] = Deviations.of(inputs, widths, generator, metric)
    made["quadratic"] = Quadratic.of(inputs.here, metric)
    views = []
    for name, features in made.items():
        solved = _solved(features, inputs, discount, horizon)
        view = solved.view(name)
        views.append(view if units is None else replace(view, linear=solved.linear(features, view, units)))
    return views


def learned_metric(
    inputs: Inputs, discount: float, horizon: int | None, generator: np.random.Generator
) -> FloatArray:
    """The directions that Q follows, shape (k, k): the root of the mean outer product of its gradients.

    Where there are many columns, most of them say little about Q, and distances between steps are mostly
    theirs. Cosines of `points @ metric` look along the others (Radhakrishnan et al., 2024: recursive feature
    machines, there for regression, here for LSTD). Chosen on design families: the consensus' median error on
    covered logs of nonlinear_lqr (distractors) fell from 9.8 to 4.7 %, of walker_walk from 12 to 5 %.
    """
    width = inputs.here.shape[1]
    metric = np.eye(width)
    looked = generator.choice(len(inputs.here), min(_GRADIENTS, len(inputs.here)), replace=False)
    for _ in range(_ROUNDS):
        features = Cosines.of(inputs.here, [1.0], COSINES // 2, generator, metric)
        theta = _solved(features, inputs, discount, horizon).theta
        slopes = features.gradients(inputs.here[looked], theta)
        outer = slopes.T @ slopes
        size = np.trace(outer) / width
        if not 0.0 < size < math.inf:
            break
        values, vectors = np.linalg.eigh((1.0 - _EVEN) * outer / size + _EVEN * np.eye(width))
        metric = np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)
    return metric


def _solved(features: Features, inputs: Inputs, discount: float, horizon: int | None) -> "_Solved":
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
        solved = _Solved(phi, ahead, starts, bounded, cross, inputs.rewards, discount, horizon)
        if low <= solved.value <= high and (ridge == RIDGE or solved.contracts):
            break
    return solved


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

    def view(self, name: str) -> View:
        count, theta = len(self.phi), self.theta
        if self.horizon is None:
            dual = np.linalg.solve((self.sigma - self.discount * self.cross).T, self.x0)
            td = self.rewards + self.discount * (self.ahead @ theta) - self.phi @ theta
            weights = self.phi @ dual / count
            return View(name, self.value, weights, td, self.starts @ theta)
        with np.errstate(over="ignore", invalid="ignore"):
            dual = np.linalg.solve(self.sigma, self.powers.T @ self.x0)
            return View(name, self.value, self.phi @ dual / count, None, self.starts @ theta)

    def linear(self, features: Features, view: View, units: NDArray[np.int64]) -> Linear:
        """What other states need of this view."""
        if self.horizon is not None:
            return Linear(features, self.theta, self._parts(), None, None)
        assert view.td is not None
        system = self.sigma - self.discount * self.cross
        count = len(self.phi)
        by_unit = sparse.csr_matrix((view.td / count, (units, np.arange(count)))) @ self.phi
        few = len(by_unit) <= by_unit.shape[1]
        small: FloatArray = by_unit if few else np.asarray(np.linalg.qr(by_unit, mode="r"))
        return Linear(
            features, self.theta, view.weights * view.td, system, np.asarray(np.linalg.solve(system, small.T))
        )

    def _parts(self) -> FloatArray:
        """Each transition's part of the error of theta_K, theta_{j+1} = first + step theta_j.

            sum_k (x0^T step^k Sigma^-1 phi_i) (r_i + discount phi'_i^T theta_j - phi_i^T theta_{j+1}) / N

        with j = K - 1 - k. Of a long horizon every few steps are looked at, and stand for those between.
        """
        assert self.horizon is not None
        thetas, duals = [np.zeros_like(self.first)], [self.x0]
        with np.errstate(over="ignore", invalid="ignore"):  # a view that explodes is dropped by its value
            for _ in range(min(self.horizon, 5_000)):  # by then both have come to rest
                thetas.append(self.first + self.step @ thetas[-1])
                duals.append(self.step.T @ duals[-1])
        last = len(thetas) - 1
        looked = np.unique(np.linspace(0, last - 1, min(_LOOKED, last)).astype(np.int64))
        parts = np.zeros(len(self.phi))
        for k, following in zip(looked, [*looked[1:], last], strict=True):
            j = last - 1 - k
            with np.errstate(over="ignore", invalid="ignore"):
                td = self.rewards + self.discount * (self.ahead @ thetas[j]) - self.phi @ thetas[j + 1]
                dual = np.linalg.solve(self.sigma, duals[k])
                parts += (following - k) * (self.phi @ dual) * td / len(self.phi)
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
