"""What every representation is to the rest of the package: phi(s, a) in two stages, and two uses of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array, Dataset
from bcrl.data.select import split_units
from bcrl.estimate import FloatArray
from bcrl.linear import Moments, lspe
from bcrl.networks import encode_rows
from bcrl.policies.policy import TargetActions
from bcrl.training import Run


class Fitted(Protocol):
    """phi(s, a) in two stages, so that an observation is encoded once for all actions and policies."""

    @property
    def dim(self) -> int: ...

    def encode(self, observations: dict[str, Array]) -> Any: ...  # noqa: ANN401 - an array that takes row indices

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


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Two halves of the units (of the transitions, where there is one unit only), encoded once for all
    features of one encoder.

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
            alive = ~dataset.terminated[held]
            td = dataset.rewards[held] + discount * alive * (following[1] @ theta) - logged[1] @ theta
            errors.append(float(np.mean(td**2)))
        return float(np.mean(errors))


def expected_features(fitted: Fitted, z: Any, target: TargetActions) -> FloatArray:  # noqa: ANN401
    """phi(s, pi) = sum_k w_k phi(s, a_k), shape (n, dim)."""
    out = np.zeros((len(target.weights), fitted.dim))
    for k in range(target.weights.shape[1]):
        weight = target.weights[:, k]
        if weight.any():
            out += weight[:, None] * fitted.features(z, target.actions[:, k])
    return out


def _thin(transitions: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    return transitions[:: max(1, -(-len(transitions) // limit))]
