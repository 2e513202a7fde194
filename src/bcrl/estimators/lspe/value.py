"""V(s) = theta^T phi(s, pi) anywhere, with a standard error of its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array, Dataset
from bcrl.errors import BadInput
from bcrl.estimate import FloatArray
from bcrl.policies.policy import AnyPolicy, TargetActions
from bcrl.question import actions_for_value
from bcrl.representations.features import Fitted, expected_features
from bcrl.representations.fixed import FeatureFunction, FittedGiven


@dataclass(frozen=True, eq=False)
class LinearValue:
    """The value function of an LSPE estimate.

    Attributes:
        fitted: the representation.
        theta: shape (d,).
        error_root: E with theta's error covariance E E^T, shape (d, k); None where unknown (a horizon).
        template: the kind of data that observations come as.
        policy: the evaluated policy.
        seed: draws the actions of a stochastic policy.
    """

    fitted: Fitted
    theta: FloatArray
    error_root: FloatArray | None
    template: Dataset
    policy: AnyPolicy
    seed: int

    def value(self, observations: Mapping[str, Array]) -> FloatArray:
        return np.asarray(self._features(observations) @ self.theta)

    def standard_error(self, observations: Mapping[str, Array]) -> FloatArray | None:
        if self.error_root is None:
            return None
        return np.asarray(np.linalg.norm(self._features(observations) @ self.error_root, axis=1))

    def q(self, observations: Mapping[str, Array], actions: NDArray[np.float32]) -> FloatArray:
        """Q(s, a) for action matrices (n, action_dim)."""
        z = self.fitted.encode(self.template.keyed(observations))
        return np.asarray(self.fitted.features(z, actions) @ self.theta)

    def v_of(self, observations: Mapping[str, Array], chosen: TargetActions) -> FloatArray:
        """sum_k w_k Q(s, a_k), shape (n,)."""
        z = self.fitted.encode(self.template.keyed(observations))
        return np.asarray(expected_features(self.fitted, z, chosen) @ self.theta)

    def _features(self, observations: Mapping[str, Array]) -> FloatArray:
        keyed = self.template.keyed(observations)
        actions = actions_for_value(self.template, self.policy, keyed, self.seed)
        return expected_features(self.fitted, self.fitted.encode(keyed), actions)

    def tensors(self) -> dict[str, Array]:
        weights = {"theta": self.theta}
        if self.error_root is not None:
            weights["error_root"] = np.ascontiguousarray(self.error_root)
        return weights | {f"representation.{name}": value for name, value in self.fitted.tensors().items()}

    def spec(self) -> dict[str, Any]:
        return {"kind": "linear", "seed": self.seed, "representation": self.fitted.spec()}


@dataclass(frozen=True, eq=False)
class MeanValue:
    """The average of several value functions: cross-fitting's answer."""

    parts: tuple[LinearValue, ...]

    def value(self, observations: Mapping[str, Array]) -> FloatArray:
        return np.asarray(np.mean([part.value(observations) for part in self.parts], axis=0))

    def standard_error(self, observations: Mapping[str, Array]) -> FloatArray | None:
        """Parts see disjoint data, so their variances add."""
        errors = [part.standard_error(observations) for part in self.parts]
        squares = [error**2 for error in errors if error is not None]
        if len(squares) < len(errors):
            return None
        return np.asarray(np.sqrt(np.sum(squares, axis=0)) / len(self.parts))

    def q(self, observations: Mapping[str, Array], actions: NDArray[np.float32]) -> FloatArray:
        return np.asarray(np.mean([part.q(observations, actions) for part in self.parts], axis=0))

    @property
    def template(self) -> Dataset:
        return self.parts[0].template

    @property
    def policy(self) -> AnyPolicy:
        return self.parts[0].policy

    def tensors(self) -> dict[str, Array]:
        return {
            f"{i}.{name}": value
            for i, part in enumerate(self.parts)
            for name, value in part.tensors().items()
        }

    def spec(self) -> dict[str, Any]:
        return {"kind": "mean", "parts": [part.spec() for part in self.parts]}


def restore(
    spec: dict[str, Any],
    tensors: Mapping[str, Array],
    *,
    restore_fitted: Callable[[dict[str, Any], dict[str, Array]], Fitted],
    template: Dataset,
    policy: AnyPolicy,
    features: FeatureFunction | None,
) -> LinearValue | MeanValue:
    """The value function that `spec` and `tensors` came from; `features` is `GivenFeatures`' function."""
    context = {"restore_fitted": restore_fitted, "template": template, "policy": policy, "features": features}
    if spec["kind"] == "mean":
        parts = [
            restore(part, _inside(tensors, f"{i}."), **context)  # type: ignore[arg-type]
            for i, part in enumerate(spec["parts"])
        ]
        return MeanValue(tuple(part for part in parts if isinstance(part, LinearValue)))
    inner = spec["representation"]
    if inner["kind"] != "given":
        fitted: Fitted = restore_fitted(inner, _inside(tensors, "representation."))
    elif features is None:
        raise BadInput(
            "This estimate used GivenFeatures; pass its function again: "
            "load_estimate(..., features=function)."
        )
    else:
        fitted = FittedGiven(features, template, dim=inner["dim"])
    return LinearValue(fitted, tensors["theta"], tensors.get("error_root"), template, policy, spec["seed"])


def _inside(tensors: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
