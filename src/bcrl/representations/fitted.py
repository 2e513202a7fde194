"""Learned features phi(s, a): an encoder, a head, and what is done to the head's output.

    phi(s, a) = [ norm(head(encoder(s), a)), 1 ]

The constant is Bellman complete when nothing terminates, and without it values drift. Every network
representation (BellmanComplete, CURL, SPR) comes back as `FittedFeatures`, saved as plain arrays.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bcrl.data.dataset import Array, Dataset
from bcrl.estimate import FloatArray
from bcrl.networks import Activation, Encoder, FeatureNorm, Head, HeadNet, Pixels, encoder_for

# Curves of a training that a steadier one replaced.
FIRST_TRY, FIRST_STEPS = "first_try/value", "first_try/step"
_CHUNK = 8192


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
        features: Tensor = self.head(z, actions)
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

    def spec(self) -> dict[str, Any]:
        inner = {"encoder": self.encoder.spec(), "head": self.head.spec()}
        return {"kind": "features", "constant": self.constant, "norm": self.norm} | inner


def new_net(
    dataset: Dataset,
    dim: int,
    *,
    reads: str | tuple[str, ...] | None,
    pixels: Pixels,
    crop: int | None = None,
    head: Head,
    activation: Activation,
    constant: bool,
    generator: torch.Generator,
) -> FeatureNet:
    """Encoder and head of a recipe, with fresh weights.

    Args:
        dataset: gives the shapes.
        dim: number of features, the constant one included.
        reads: observation keys to look at, as in `encoder_for`.
        pixels: the encoder.
        crop: side of the images that it reads, as in `encoder_for`.
        head: the head.
        activation: used if the head's own is None.
        constant: append a feature that is always 1.
        generator: draws the weights.
    """
    encoder = encoder_for(dataset, reads=reads, pixels=pixels, crop=crop, generator=generator)
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
            for first in range(0, len(z), _CHUNK):
                pair = (
                    torch.tensor(part[first : first + _CHUNK], device=self._device) for part in (z, actions)
                )
                out[first : first + _CHUNK] = self.net(*pair).cpu().numpy()
        return out

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
