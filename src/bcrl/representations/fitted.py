"""Learned features phi(s, a): an encoder, a head, and what is done to the head's output.

    phi(s, a) = [ norm(head(encoder(s), a)), 1 ]

The constant is Bellman complete when nothing terminates, and without it values drift. Every network representation
(BellmanComplete, CURL, SPR) comes back as `FittedFeatures`, saved as plain arrays.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bcrl.data.dataset import Array
from bcrl.estimate import FloatArray
from bcrl.networks import Encoder, Head

FeatureNorm = Literal["none", "sphere", "ball"]
# Curves of a training that was left for a steadier one.
FIRST_TRY, FIRST_STEPS = "first_try/value", "first_try/step"
_CHUNK = 8192


def drift(values: Sequence[float]) -> float:
    """How far the value moved over the last half of training, relative to its end; nan where it was never taken, inf where it
    was lost on the way.
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
        norm: "sphere" scales each feature vector (without the constant) to length 1; "ball" only those longer than 1.
    """

    def __init__(self, encoder: Encoder, head: Head, *, constant: bool, norm: FeatureNorm = "none") -> None:
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

    def spec(self) -> dict[str, Any]:
        inner = {"encoder": self.encoder.spec(), "head": self.head.spec()}
        return {"kind": "features", "constant": self.constant, "norm": self.norm} | inner


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
        with torch.inference_mode():
            z = self.net.encoder(self.net.encoder.read(observations, self._device))
        return np.asarray(z.float().cpu().numpy())

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
    head = Head.restore(spec["head"], own["head"])
    return FittedFeatures(FeatureNet(encoder, head, constant=spec["constant"], norm=spec["norm"]).eval())
