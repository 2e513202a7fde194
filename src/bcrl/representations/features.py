"""What every representation must offer: phi(s, a) in two stages; and a dataset encoded by one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array, Dataset
from bcrl.estimate import FloatArray
from bcrl.linear import Moments
from bcrl.networks import encode_rows
from bcrl.policies.policy import TargetActions
from bcrl.question import Starts
from bcrl.training import Run


class Fitted(Protocol):
    """phi(s, a) in two stages, so that an observation is encoded once for all actions and policies."""

    @property
    def dim(self) -> int: ...

    def encode(self, observations: dict[str, Array]) -> Any: ...  # noqa: ANN401 - takes row indices

    def features(self, z: Any, actions: NDArray[np.float32]) -> FloatArray: ...  # noqa: ANN401

    def tensors(self) -> dict[str, Array]: ...

    def spec(self) -> dict[str, Any]: ...

    @property
    def metrics(self) -> Mapping[str, Sequence[float]]: ...


class Representation(Protocol):
    """A learner of features; one fit may serve several target policies."""

    def fit(
        self, dataset: Dataset, targets: Sequence[TargetActions], *, discount: float, seed: int, run: Run
    ) -> Fitted: ...


def expected_features(fitted: Fitted, z: Any, target: TargetActions) -> FloatArray:  # noqa: ANN401
    """phi(s, pi) = sum_k w_k phi(s, a_k), shape (n, dim)."""
    out = np.zeros((len(target.weights), fitted.dim))
    for k in range(target.weights.shape[1]):
        weight = target.weights[:, k]
        if weight.any():
            out += weight[:, None] * fitted.features(z, target.actions[:, k])
    return out


CHUNK = 4096


@dataclass(frozen=True, eq=False)
class Encoded:
    """z of every observation row, and phi from z. `GivenFeatures` has no z and reads observations again."""

    dataset: Dataset
    fitted: Fitted
    z: Array | None

    @classmethod
    def of(cls, dataset: Dataset, fitted: Fitted) -> "Encoded":
        if getattr(fitted, "reads_observations", False):
            return cls(dataset, fitted, None)
        return cls(dataset, fitted, encode_rows(fitted.encode, dataset))

    def at(self, rows: NDArray[np.int64]) -> Any:  # noqa: ANN401 - whatever the representation encodes to
        return self.z[rows] if self.z is not None else self.fitted.encode(self.dataset.observe(rows))

    def starts(self, starts: Starts) -> Any:  # noqa: ANN401 - as above
        """Start states; those that begin this data's own episodes are encoded already."""
        if starts.unit is not None and np.array_equal(starts.unit, self.dataset.units):
            return self.at(self.dataset.start_rows)
        return self.fitted.encode(dict(starts.observations))

    def logged(self, transitions: NDArray[np.int64]) -> FloatArray:
        """phi(s, a) of these transitions, shape (n, d)."""
        actions = self.dataset.action_matrix(self.dataset.actions[transitions])
        return np.asarray(
            self.fitted.features(self.at(self.dataset.rows[transitions]), actions), dtype=np.float64
        )

    def policy(self, rows: NDArray[np.int64], target: TargetActions) -> FloatArray:
        """phi(s, pi) at these observation rows, shape (n, d)."""
        return expected_features(self.fitted, self.at(rows), target.take(rows))

    def chunks(
        self, transitions: NDArray[np.int64], target: TargetActions
    ) -> Iterator[tuple[NDArray[np.int64], FloatArray, FloatArray]]:
        """(transitions, phi(s, a), phi(s', pi)) in pieces that fit in memory; phi(s', pi) is not masked."""
        for first in range(0, len(transitions), CHUNK):
            part = transitions[first : first + CHUNK]
            yield part, self.logged(part), self.policy(self.dataset.rows[part] + 1, target)

    def moments(self, transitions: NDArray[np.int64], target: TargetActions) -> Moments:
        """Sums over these transitions for LSPE of this target policy."""
        total = Moments.zeros(self.fitted.dim)
        for part, phi, next_phi in self.chunks(transitions, target):
            total = total + Moments.from_features(
                phi, next_phi, self.dataset.rewards[part], self.dataset.terminated[part]
            )
        return total

    def behaviour_moments(self, transitions: NDArray[np.int64]) -> Moments:
        """Sums for LSPE of the logging policy itself: the next action is the logged one (SARSA)."""
        total = Moments.zeros(self.fitted.dim)
        for first in range(0, len(transitions), CHUNK):
            part = transitions[first : first + CHUNK]
            following = np.minimum(part + 1, len(self.dataset) - 1)
            total = total + Moments.from_features(
                self.logged(part),
                self.logged(following),
                self.dataset.rewards[part],
                self.dataset.terminated[part],
            )
        return total
