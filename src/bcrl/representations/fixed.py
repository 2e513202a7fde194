"""Representations that are not learned: the user's own features, and random Fourier features.

Random Fourier features (Rahimi and Recht, 2007) of x = [z, a], every column in units of its standard
deviation:

    phi_j(s, a) = sqrt(2 / dim) cos(w_j . x / width + u_j),   w_j ~ N(0, I),  u_j ~ U[0, 2 pi)

plus a constant feature, which is Bellman complete when nothing terminates and keeps values from drifting. The
width is a multiple of the median distance between data points, chosen by held-out TD error. On pixels z is an
untrained encoder.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array, Dataset
from bcrl.data.select import split_units, subsample
from bcrl.errors import BadInput
from bcrl.estimate import FloatArray, short_call
from bcrl.inference.views.features import Cosines, median_distance
from bcrl.linear import Moments, lspe, td_errors
from bcrl.networks import PIXELS, Encoder, Pixels, encode_rows, encoder_for
from bcrl.options import NOT_EMPTY, Checked, Positive, Width
from bcrl.policies.policy import TargetActions
from bcrl.representations.features import Fitted, expected_features, training_discount
from bcrl.training import Pace, Run, generators

FeatureFunction = Callable[[Any, Array], Array]


@dataclass(frozen=True)
class GivenFeatures(Checked):
    """The user's own features, exactly as given.

    Attributes:
        function: (observations, actions) -> (n, d), with observations and actions in the form in which the
            data came.
    """

    function: FeatureFunction

    def fit(
        self, dataset: Dataset, targets: Sequence[TargetActions], *, discount: float, seed: int, run: Run
    ) -> "FittedGiven":
        rows = np.arange(min(len(dataset), 2))
        template = dataset.template()
        probe = FittedGiven(self.function, template, dim=0)
        phi = probe.features(
            probe.encode(dataset.observe(dataset.rows[rows])), dataset.action_matrix(dataset.actions[rows])
        )
        return FittedGiven(self.function, template, dim=phi.shape[1])


@dataclass(frozen=True, eq=False)
class FittedGiven:
    """`GivenFeatures`, bound to a kind of data."""

    function: FeatureFunction
    template: Dataset
    dim: int
    metrics: dict[str, list[float]] = field(default_factory=dict)
    reads_observations: ClassVar[bool] = True  # it has no z: nothing is gained by encoding all rows at once

    def encode(self, observations: dict[str, Array]) -> Array:
        """Observations as rows of one array, which `features` takes apart again."""
        return np.concatenate([np.asarray(v).reshape(len(v), -1) for v in observations.values()], axis=1)

    def features(self, z: Array, actions: NDArray[np.float32]) -> FloatArray:
        phi = np.asarray(self.function(self._observations(z), self._actions(actions)), dtype=np.float64)
        if phi.ndim != 2 or len(phi) != len(actions) or (self.dim and phi.shape[1] != self.dim):
            wanted = f"({len(actions)}, {self.dim or 'd'})"
            raise BadInput(f"GivenFeatures' function returned shape {phi.shape}; expected {wanted}.")
        if not np.isfinite(phi).all():
            raise BadInput("GivenFeatures' function returned NaN or infinity; expected finite features.")
        return phi

    def _observations(self, z: Array) -> Any:  # noqa: ANN401 - array or dict, as the data came
        parts, first = {}, 0
        for key, like in self.template.observe(np.zeros(0, dtype=np.int64)).items():
            width = int(np.prod(like.shape[1:]))
            parts[key] = (
                z[:, first : first + width].reshape(len(z), *like.shape[1:]).astype(like.dtype, copy=False)
            )
            first += width
        return self.template.natural(parts)

    def _actions(self, actions: NDArray[np.float32]) -> Array:
        if self.template.discrete:
            return np.asarray(actions.argmax(axis=1))
        return actions.reshape(len(actions), *self.template.actions.shape[1:]).astype(np.float64)

    def tensors(self) -> dict[str, Array]:
        return {}

    def spec(self) -> dict[str, Any]:
        return {"kind": "given", "dim": self.dim}


@dataclass(frozen=True)
class RandomFeatures(Checked):
    """Random Fourier features: the strong, cheap baseline in every table.

    Attributes:
        dim: number of cosines; a constant feature is added.
        widths: candidate widths, in units of the median distance between data points.
        reads: observation key(s) to look at; None = pixels where there are any, else every vector.
        pixels: the encoder of pixels, which stays untrained.
    """

    dim: Width = 600
    widths: Annotated[tuple[Positive, ...], NOT_EMPTY] = (0.35, 0.7, 1.0, 1.4, 2.8)
    reads: str | tuple[str, ...] | None = None
    pixels: Pixels = PIXELS

    __repr__ = short_call

    def fit(
        self, dataset: Dataset, targets: Sequence[TargetActions], *, discount: float, seed: int, run: Run
    ) -> "FittedFourier":
        generator, torch_generator = generators(seed)
        encoder = encoder_for(dataset, reads=self.reads, pixels=self.pixels, generator=torch_generator)
        drawn = subsample(np.arange(len(dataset)), 8192, generator)
        z = encoder.encode(dataset.observe(dataset.rows[drawn]))
        inputs = np.concatenate([z, dataset.action_matrix(dataset.actions[drawn])], axis=1, dtype=np.float64)
        scale = inputs.std(axis=0)
        scale[scale < 1e-8] = 1.0
        centre = inputs.mean(axis=0)
        weights = generator.standard_normal((inputs.shape[1], self.dim))
        phases = generator.uniform(0.0, 2.0 * np.pi, self.dim)
        median = median_distance((inputs - centre) / scale, generator)
        candidates = [
            FittedFourier(encoder, centre, scale, weights / (width * median), phases, {})
            for width in self.widths
        ]
        held = HeldOut.of(encoder.encode, dataset, seed)
        pace, errors = Pace(run, "choosing the width", len(candidates)), []
        for candidate in candidates:
            errors.append(held.td_error(candidate, targets, training_discount(discount)))
            pace.advance(1)
        best = int(np.argmin(errors))
        metrics = {"widths": list(self.widths), "held_out_td_error": errors}
        chosen = candidates[best]
        return FittedFourier(encoder, centre, scale, chosen.weights, phases, metrics)


@dataclass(frozen=True, eq=False)
class FittedFourier:
    """Random Fourier features with their width chosen."""

    encoder: Encoder
    centre: FloatArray
    scale: FloatArray
    weights: FloatArray
    phases: FloatArray
    metrics: dict[str, list[float]]

    @property
    def dim(self) -> int:
        return len(self.phases) + 1

    def encode(self, observations: dict[str, Array]) -> Array:
        return self.encoder.encode(observations)

    def features(self, z: Array, actions: NDArray[np.float32]) -> FloatArray:
        x = (np.concatenate([z, actions], axis=1, dtype=np.float64) - self.centre) / self.scale
        # Cosines of float32 take a tenth of the time, and the ridge is far above their rounding.
        return Cosines(self.weights.astype(np.float32), self.phases.astype(np.float32))(x)

    def closed_expectation(self, z: Array, weights: FloatArray) -> FloatArray:
        """sum_a w_a phi(s, a) over all one-hot actions, shape (n, dim), for any number of them.

        E cos(x + y_a) = cos x E cos y_a - sin x E sin y_a, where y_a is what action a adds to the angle.
        """
        width = z.shape[1]
        states = (np.asarray(z, dtype=np.float64) - self.centre[:width]) / self.scale[:width]
        added = self.weights[width:] / self.scale[width:, None]
        angles = states @ self.weights[:width] + self.phases - self.centre[width:] @ added
        mean_cosine, mean_sine = weights @ np.cos(added), weights @ np.sin(added)
        out = np.empty((len(z), self.dim))
        out[:, :-1] = np.cos(angles) * mean_cosine - np.sin(angles) * mean_sine
        out[:, :-1] *= math.sqrt(2.0 / len(self.phases))
        out[:, -1] = weights.sum(axis=1)
        return out

    def tensors(self) -> dict[str, Array]:
        own = {"centre": self.centre, "scale": self.scale, "weights": self.weights, "phases": self.phases}
        return own | {f"encoder.{name}": value for name, value in self.encoder.tensors().items()}

    def spec(self) -> dict[str, Any]:
        return {"kind": "fourier", "encoder": self.encoder.spec()}


def restore(spec: dict[str, Any], tensors: dict[str, Array]) -> FittedFourier:
    """The features that `FittedFourier.spec` and `.tensors` describe."""
    inner = {
        name.removeprefix("encoder."): value for name, value in tensors.items() if name.startswith("encoder.")
    }
    encoder = Encoder.restore(spec["encoder"], inner)
    return FittedFourier(
        encoder, tensors["centre"], tensors["scale"], tensors["weights"], tensors["phases"], {}
    )


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Two halves of the units (of the transitions if there is one unit), encoded once for all features.

    Attributes:
        dataset: where they are from.
        parts: transitions to fit on, and transitions to judge by.
        here, ahead: codes of their observations and of the next ones.
    """

    dataset: Dataset
    parts: tuple[NDArray[np.int64], NDArray[np.int64]]
    here: list[NDArray[Any]]
    ahead: list[NDArray[Any]]

    @classmethod
    def of(
        cls, encode: Callable[[dict[str, Any]], Any], dataset: Dataset, seed: int, limit: int = 10_000
    ) -> "HeldOut":
        """At most `limit` transitions of each half."""
        fit, held = (_thin(part, limit) for part in split_units(dataset, 0.5, seed))
        here, ahead = list[NDArray[Any]](), list[NDArray[Any]]()
        for part in (fit, held):
            rows = dataset.rows[part]
            seen, places = np.unique(np.concatenate([rows, rows + 1]), return_inverse=True)
            z = encode_rows(encode, dataset, seen)
            here.append(z[places[: len(rows)]])
            ahead.append(z[places[len(rows) :]])
        return cls(dataset, (fit, held), here, ahead)

    def td_error(self, fitted: Fitted, targets: Sequence[TargetActions], discount: float) -> float:
        """Mean squared TD error of the LSTD solution on the held-out part, averaged over target policies."""
        dataset, (fit, held) = self.dataset, self.parts
        logged = [
            fitted.features(z, dataset.action_matrix(dataset.actions[part]))
            for z, part in zip(self.here, self.parts, strict=True)
        ]
        errors = []
        for target in targets:
            following = [
                expected_features(fitted, z, target.take(dataset.rows[part] + 1))
                for z, part in zip(self.ahead, self.parts, strict=True)
            ]
            moments = Moments.from_features(
                logged[0], following[0], dataset.rewards[fit], dataset.terminated[fit]
            )
            theta = lspe(moments, discount, iterations=1, ridge=1e-6).lstd
            if theta is None:
                return float("inf")
            q, next_v = logged[1] @ theta, following[1] @ theta
            td = td_errors(dataset.rewards[held], dataset.terminated[held], q, next_v, discount)
            errors.append(float(np.mean(td**2)))
        return float(np.mean(errors))


def _thin(transitions: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    return transitions[:: max(1, -(-len(transitions) // limit))]
