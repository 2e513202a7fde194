"""Features phi(s, a): what a representation must offer, learned features, and a dataset encoded by them.

Every representation works in two stages, so that an observation is encoded once for all actions and policies
(`Fitted`). The network ones (BellmanComplete, CURL, SPR) come back as `FittedFeatures`, kept as plain arrays:

    phi(s, a) = [ norm(head(encoder(s), a)), 1 ]

The constant is Bellman complete when nothing terminates, and without it values drift.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bcrl import salts
from bcrl.data.dataset import Array, Dataset
from bcrl.estimate import FloatArray
from bcrl.linear import Moments
from bcrl.networks import Activation, Encoder, FeatureNorm, Head, HeadNet, Pixels, encode_rows, encoder_for
from bcrl.policies.policy import FEW_ACTIONS, TargetActions
from bcrl.question import Starts
from bcrl.training import Run

# Curves of a training that a steadier one replaced.
FIRST_TRY, FIRST_STEPS = "first_try/value", "first_try/step"
_ROWS_AT_ONCE, _TRANSITIONS_AT_ONCE = 8192, 4096
_MOST_CODES = 2**28  # bytes of z that are kept; vectors are standardised again where they are asked for
_FEW = 10_000  # rows whose codes are never too long
# Actions a state that an expectation goes through, and those drawn where a policy has more.
_MOST_EXACT, _DRAWS = 32, 8


class Fitted(Protocol):
    """phi(s, a) in two stages: observations to z, then z and actions to features."""

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


def training_discount(discount: float) -> float:
    """The discount below 1 that features are learned for: a finite horizon may have discount 1."""
    return 0.999 if discount == 1.0 else discount


def expected_features(fitted: Fitted, z: Any, target: TargetActions) -> FloatArray:  # noqa: ANN401
    """phi(s, pi) = sum_k w_k phi(s, a_k), shape (n, dim).

    Exact where a policy has at most 32 actions of positive probability a state in the mean. Of more,
    eight stand for all, spread evenly over the probabilities: right in the mean, with some noise. Cosines
    have a closed form for any number.
    """
    if target.exact and target.weights.shape[1] > FEW_ACTIONS:
        closed = getattr(fitted, "closed_expectation", None)
        if closed is not None:
            return np.asarray(closed(z, target.weights))
        if np.count_nonzero(target.weights > 0.0) > _MOST_EXACT * len(target.weights):
            return _drawn_features(fitted, z, target)
        if isinstance(fitted, FittedFeatures):
            return fitted.over_actions(z, target.weights)
    out = np.zeros((len(target.weights), fitted.dim))
    for k in range(target.weights.shape[1]):
        weight = target.weights[:, k]
        if weight.any():
            out += weight[:, None] * fitted.features(z, target.actions[:, k])
    return out


def _drawn_features(fitted: Fitted, z: Any, target: TargetActions) -> FloatArray:  # noqa: ANN401
    codes = target.spread_draws(_DRAWS, np.random.default_rng(salts.MANY_ACTIONS))
    out, table = np.zeros((len(codes), fitted.dim)), target.actions[0]
    for chosen in codes.T:
        out += fitted.features(z, table[chosen]) / _DRAWS
    return out


def drift(values: Sequence[float]) -> float:
    """How far the value moved over the last half of training, relative to its end.

    nan for fewer than two values, inf where one is not finite.
    """
    last = np.asarray(values[len(values) // 2 :], dtype=np.float64)
    if len(last) < 2:
        return math.nan
    if not np.isfinite(last).all():
        return math.inf
    return float(np.abs(last - last[-1]).max() / max(abs(last[-1]), 1e-12))


class FeatureNet(nn.Module):
    """phi in two stages, for training and for use.

    Args:
        encoder: observations -> z.
        head: (z, action) -> features.
        constant: append a feature that is always 1.
        norm: "sphere" scales each feature vector (without the constant) to length 1; "ball" only those longer
            than 1.
    """

    def __init__(
        self, encoder: Encoder, head: HeadNet, *, constant: bool, norm: FeatureNorm = "none"
    ) -> None:
        super().__init__()
        self.encoder, self.head, self.constant, self.norm = encoder, head, constant, norm

    @property
    def dim(self) -> int:
        return self.head.dim + int(self.constant)

    def forward(self, z: Tensor, actions: Tensor) -> Tensor:
        return self._finished(self.head(z, actions))

    def _finished(self, features: Tensor) -> Tensor:
        if self.norm != "none":
            length = torch.linalg.vector_norm(features, dim=1, keepdim=True)
            features = features / length.clamp_min(1e-8 if self.norm == "sphere" else 1.0)
        if not self.constant:
            return features
        return torch.cat([features, features.new_ones(len(features), 1)], dim=1)

    def of_policy(self, z: Tensor, actions: Tensor, weights: Tensor) -> Tensor:
        """phi(s, pi) = sum_k w_k phi(s, a_k), (n, d), for actions (n, k, action_dim) and weights (n, k)."""
        n, k, _ = actions.shape
        if k == 1:
            return self(z, actions[:, 0])  # type: ignore[no-any-return]
        features = self(z.repeat_interleave(k, dim=0), actions.flatten(0, 1)).view(n, k, -1)
        averaged: Tensor = (features * weights.to(features.dtype)[:, :, None]).sum(dim=1)
        return averaged

    def draws_of_policy(self, z: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and half the difference of phi(s, a) for two discrete actions a row, by number, (n, 2).

        With independent draws E[phi(s, pi) phi(s, pi)^T] is that of mean mean^T - half half^T: the two
        features' product, which holds no variance of either draw.
        """
        first, second = self(z.repeat(2, 1), codes.T.flatten()).chunk(2)
        return (first + second) / 2.0, (first - second) / 2.0

    def over_actions(self, z: Tensor, weights: Tensor) -> Tensor:
        """sum_a w_a phi(s, a) over one-hot actions of positive weight, (n, d), for weights (n, actions).

        The first layer is computed once a state and once an action, the last once a state where it is linear.
        """
        last = self.head.mlp[-1]
        linear = isinstance(last, nn.Linear) and len(self.head.mlp) > 1 and self.norm == "none"
        between = self.head.mlp[1:-1] if linear else self.head.mlp[1:]
        of_state, of_action = self.head.from_state(z), self.head.of_action
        total = z.new_zeros(len(z), of_state.shape[1] if linear else self.dim)
        rows, codes = torch.nonzero(weights > 0.0, as_tuple=True)
        for row, code in zip(*(torch.split(each, _ROWS_AT_ONCE) for each in (rows, codes)), strict=True):
            out = between(of_state[row] + of_action[code])
            out = out if linear else self._finished(out)
            total.index_add_(0, row, out * weights[row, code, None].to(out.dtype))
        if not linear:
            return total
        assert isinstance(last, nn.Linear)
        mass = weights.sum(dim=1, keepdim=True).to(total.dtype)
        features = nn.functional.linear(total, last.weight) + mass * last.bias
        return torch.cat([features, mass], dim=1) if self.constant else features

    def spec(self) -> dict[str, Any]:
        inner = {"encoder": self.encoder.spec(), "head": self.head.spec()}
        return {"kind": "features", "constant": self.constant, "norm": self.norm} | inner


class NetworkOptions(Protocol):
    """What every learned representation says about its network."""

    @property
    def reads(self) -> str | tuple[str, ...] | None: ...

    @property
    def pixels(self) -> Pixels: ...

    @property
    def head(self) -> Head: ...

    @property
    def constant_feature(self) -> bool: ...


def new_net(
    dataset: Dataset,
    dim: int,
    recipe: NetworkOptions,
    *,
    activation: Activation,
    generator: torch.Generator,
    crop: int | None = None,
) -> FeatureNet:
    """Encoder and head of a recipe, with fresh weights.

    Args:
        dataset: gives the shapes.
        dim: number of features, the constant one included.
        recipe: what it is made of.
        activation: used if the head's own is None.
        generator: draws the weights.
        crop: side of the images that the encoder reads, as in `encoder_for`.
    """
    head, constant = recipe.head, recipe.constant_feature
    encoder = encoder_for(dataset, reads=recipe.reads, pixels=recipe.pixels, crop=crop, generator=generator)
    net = HeadNet(
        encoder.z_dim,
        dataset.action_dim,
        dim - int(constant),
        hidden=head.hidden,
        layers=head.layers,
        activation=head.activation or activation,
        activate_last=head.activate_last,
        layer_norm=head.layer_norm,
        generator=generator,
    )
    return FeatureNet(encoder, net, constant=constant, norm=head.norm)


@dataclass(frozen=True, eq=False)
class FittedFeatures:
    """Learned features, ready for use on numpy arrays.

    Attributes:
        net: the networks, in evaluation mode.
        metrics: curves of the training.
    """

    net: FeatureNet
    metrics: dict[str, list[float]] = field(default_factory=dict)

    @property
    def dim(self) -> int:
        return self.net.dim

    @property
    def _device(self) -> torch.device:
        return next(self.net.head.parameters()).device

    def encode(self, observations: Mapping[str, Array]) -> NDArray[np.float32]:
        """z of each observation, shape (n, z_dim)."""
        return self.net.encoder.encode(observations)

    def features(self, z: NDArray[np.float32], actions: NDArray[np.float32]) -> FloatArray:
        """phi(s, a), shape (n, dim)."""
        out = np.empty((len(z), self.dim))
        with torch.inference_mode():
            for first in range(0, len(z), _ROWS_AT_ONCE):
                pair = (
                    torch.tensor(part[first : first + _ROWS_AT_ONCE], device=self._device)
                    for part in (z, actions)
                )
                out[first : first + _ROWS_AT_ONCE] = self.net(*pair).cpu().numpy()
        return out

    def over_actions(self, z: NDArray[np.float32], weights: FloatArray) -> FloatArray:
        """sum_a w_a phi(s, a) over all discrete actions, shape (n, dim)."""
        with torch.inference_mode():
            pair = (torch.tensor(part, device=self._device) for part in (z, weights))
            return self.net.over_actions(*pair).cpu().double().numpy()

    def tensors(self) -> dict[str, Array]:
        parts = {"encoder": self.net.encoder.tensors(), "head": self.net.head.tensors()}
        return {f"{part}.{name}": value for part, own in parts.items() for name, value in own.items()}

    def spec(self) -> dict[str, Any]:
        return self.net.spec()


def restore(spec: Mapping[str, Any], tensors: Mapping[str, Array]) -> FittedFeatures:
    """The features that `FittedFeatures.spec` and `.tensors` describe."""
    own: dict[str, dict[str, Array]] = {"encoder": {}, "head": {}}
    for name, value in tensors.items():
        part, _, rest = name.partition(".")
        own[part][rest] = value
    encoder = Encoder.restore(spec["encoder"], own["encoder"])
    head = HeadNet.restore(spec["head"], own["head"])
    return FittedFeatures(FeatureNet(encoder, head, constant=spec["constant"], norm=spec["norm"]).eval())


@dataclass(frozen=True, eq=False)
class Encoded:
    """z of every observation row, and phi from z.

    Where z is None the observations are read again: `GivenFeatures` has none, and of a long log of vectors it
    would fill the memory.
    """

    dataset: Dataset
    fitted: Fitted
    z: Array | None

    @classmethod
    def of(cls, dataset: Dataset, fitted: Fitted) -> "Encoded":
        if getattr(fitted, "reads_observations", False) or _too_long(dataset, fitted):
            return cls(dataset, fitted, None)
        return cls(dataset, fitted, encode_rows(fitted.encode, dataset))

    @property
    def has_codes(self) -> bool:
        """Whether observations have a code of their own."""
        return not getattr(self.fitted, "reads_observations", False)

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
        for first in range(0, len(transitions), _TRANSITIONS_AT_ONCE):
            part = transitions[first : first + _TRANSITIONS_AT_ONCE]
            yield part, self.logged(part), self.policy(self.dataset.rows[part] + 1, target)

    def moments(self, transitions: NDArray[np.int64], target: TargetActions) -> Moments:
        """Sums over these transitions for LSPE of this target policy."""
        return self.moments_of_all(transitions, [target])[0]

    def moments_of_all(
        self, transitions: NDArray[np.int64], targets: Sequence[TargetActions]
    ) -> list[Moments]:
        """The same for several policies in one pass: what is common to all is computed once."""
        totals = [Moments.zeros(self.fitted.dim) for _ in targets]
        for first in range(0, len(transitions), _TRANSITIONS_AT_ONCE):
            part = transitions[first : first + _TRANSITIONS_AT_ONCE]
            rows = self.dataset.rows[part] + 1
            phi, ahead = self.logged(part), self.at(rows)
            rewards, terminated = self.dataset.rewards[part], self.dataset.terminated[part]
            for place, target in enumerate(targets):
                next_phi = expected_features(self.fitted, ahead, target.take(rows))
                totals[place] += Moments.from_features(phi, next_phi, rewards, terminated)
        return totals

    def behaviour_moments(self, transitions: NDArray[np.int64]) -> Moments:
        """Sums for LSPE of the logging policy itself: the next action is the logged one (SARSA)."""
        total = Moments.zeros(self.fitted.dim)
        for first in range(0, len(transitions), _TRANSITIONS_AT_ONCE):
            part = transitions[first : first + _TRANSITIONS_AT_ONCE]
            following = np.minimum(part + 1, len(self.dataset) - 1)
            total = total + Moments.from_features(
                self.logged(part),
                self.logged(following),
                self.dataset.rewards[part],
                self.dataset.terminated[part],
            )
        return total


def _too_long(dataset: Dataset, fitted: Fitted) -> bool:
    """Whether z of all rows takes much memory and little time: pixels are encoded once."""
    if dataset.pixel_keys or dataset.num_observations < _FEW:
        return False
    one = np.asarray(fitted.encode(dataset.observe(np.zeros(1, dtype=np.int64))))
    return one.nbytes * dataset.num_observations > _MOST_CODES


def constant_feature(encoded: Encoded) -> int | None:
    """Number of the feature that is 1 at every logged pair; None where there is none."""
    candidates: NDArray[np.bool_] | None = None
    for first in range(0, len(encoded.dataset), _TRANSITIONS_AT_ONCE):
        ones = (
            encoded.logged(np.arange(first, min(first + _TRANSITIONS_AT_ONCE, len(encoded.dataset)))) == 1.0
        ).all(axis=0)
        candidates = ones if candidates is None else candidates & ones
        if not candidates.any():
            return None
    return None if candidates is None else int(np.flatnonzero(candidates)[0])
