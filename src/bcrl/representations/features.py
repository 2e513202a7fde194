"""What every representation is to the rest of the package: phi(s, a) in two stages, and two uses of it."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array, Dataset
from bcrl.data.split import split_units
from bcrl.estimate import FloatArray
from bcrl.linear import Moments, lspe
from bcrl.policy import TargetActions
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


def held_out_td_error(
    fitted: Fitted,
    dataset: Dataset,
    targets: Sequence[TargetActions],
    *,
    discount: float,
    seed: int,
    limit: int = 10_000,
) -> float:
    """Mean squared TD error of the LSTD solution on held-out units, averaged over target policies.

    The fit sees one half of the units (the transitions, where there is one unit only), at most `limit` transitions of each half.
    """
    fit_part, held_part = (_thin(part, limit) for part in split_units(dataset, 0.5, seed))
    z, z_next = (
        [
            np.asarray(fitted.encode(dataset.observe(dataset.rows[part] + step)))
            for part in (fit_part, held_part)
        ]
        for step in (0, 1)
    )
    logged = [
        fitted.features(z[i], dataset.action_matrix(dataset.actions[p]))
        for i, p in enumerate((fit_part, held_part))
    ]
    errors = []
    for target in targets:
        following = [
            expected_features(fitted, z_next[i], target.take(dataset.rows[part] + 1))
            for i, part in enumerate((fit_part, held_part))
        ]
        moments = Moments.from_features(
            logged[0], following[0], dataset.rewards[fit_part], dataset.terminated[fit_part]
        )
        theta = lspe(moments, discount, iterations=1, ridge=1e-6).lstd
        if theta is None:
            return float("inf")
        alive = ~dataset.terminated[held_part]
        td = dataset.rewards[held_part] + discount * alive * (following[1] @ theta) - logged[1] @ theta
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
