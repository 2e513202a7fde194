"""What linear views see of a step: random cosines, deviations from the policy's action, quadratics."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bcrl.estimate import FloatArray
from bcrl.inference.inputs import Inputs

_STATE_COSINES, _SLOPES = 100, 240  # of a deviation view: a width, and for all columns of an action together
_POLYNOMIAL = 12  # inputs of the quadratic view; more are projected onto so many


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
        cls,
        points: FloatArray,
        widths: Sequence[float],
        count: int,
        generator: np.random.Generator,
        metric: FloatArray | None = None,
    ) -> "Cosines":
        """`count` of each width, in median distances between the points, or between `points @ metric`."""
        metric = np.eye(points.shape[1]) if metric is None else metric
        distance = median_distance(points, generator, metric)
        drawn = [
            metric @ generator.standard_normal((points.shape[1], count)) / (width * distance)
            for width in widths
        ]
        phases = generator.uniform(0.0, 2.0 * np.pi, count * len(widths))
        return cls(np.concatenate(drawn, axis=1).astype(np.float32), phases.astype(np.float32))

    def __call__(self, points: FloatArray) -> FloatArray:
        count = len(self.phases)
        phi = np.empty((len(points), count + 1))
        waves = np.cos(points.astype(np.float32) @ self.directions + self.phases)
        phi[:, :-1] = waves * np.float32(math.sqrt(2.0 / count))
        phi[:, -1] = 1.0
        return phi

    def gradients(self, points: FloatArray, theta: FloatArray) -> FloatArray:
        """Of theta^T phi at the points, shape (n, k)."""
        waves = np.sin(points.astype(np.float32) @ self.directions + self.phases)
        slopes = waves * (-math.sqrt(2.0 / len(self.phases)) * theta[:-1]).astype(np.float32)
        return np.asarray(slopes @ self.directions.T, dtype=np.float64)

    def logged(self, inputs: Inputs) -> FloatArray:
        return self(inputs.here)

    def expected(self, points: FloatArray, weights: FloatArray) -> FloatArray:
        return _over_actions(self, points, weights)


def median_distance(
    points: FloatArray, generator: np.random.Generator, metric: FloatArray | None = None
) -> float:
    """Median distance between random pairs of rows (of `points @ metric`); 1 where all are the same."""
    left, right = generator.integers(0, len(points), size=(2, 2_000))
    apart = points[left] - points[right]
    return float(np.median(np.linalg.norm(apart if metric is None else apart @ metric, axis=1))) or 1.0


@dataclass(frozen=True, eq=False)
class Quadratic:
    """1, x, x x^T of the inputs, or of those directions that count most where there are many."""

    directions: FloatArray

    @classmethod
    def of(cls, points: FloatArray, metric: FloatArray) -> "Quadratic":
        if points.shape[1] <= _POLYNOMIAL:
            return cls(np.eye(points.shape[1]))
        seen = points @ metric
        _, sizes, right = np.linalg.svd(seen - seen.mean(axis=0), full_matrices=False)
        spread = np.maximum(sizes[:_POLYNOMIAL] / math.sqrt(len(points)), 1e-12)
        return cls(metric @ right[:_POLYNOMIAL].T / spread)

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
    def of(
        cls, inputs: Inputs, widths: Sequence[float], generator: np.random.Generator, metric: FloatArray
    ) -> "Deviations":
        width, squares = inputs.state_width, not inputs.discrete
        states, columns = inputs.here[:, :width], inputs.here.shape[1] - width
        off = inputs.here[:, width:] - _mean_action(inputs.acting, inputs.acting_weights, width)
        scale = np.maximum(off.std(axis=0), 1e-3) if squares else np.ones(columns)
        slopes = max(_SLOPES // (columns * (2 if squares else 1) * len(widths)), 4)
        among = metric[:width, :width]
        return cls(
            Cosines.of(states, widths, _STATE_COSINES, generator, among),
            Cosines.of(states, widths, slopes, generator, among),
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
