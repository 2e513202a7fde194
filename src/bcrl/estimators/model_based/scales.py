"""Units of a world model: standardised on the way in, vectors and rewards restored on the way out."""

from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bcrl.data.dataset import Array, Dataset
from bcrl.networks import Encoder, Standardise


def unstandardise(encoder: Encoder, z: Tensor, template: Dataset) -> dict[str, Array]:
    """Observations by key from standardised vectors (n, dz): the inverse of a vector encoder."""
    widths = [part.z_dim for part in encoder.parts if isinstance(part, Standardise)]
    ends = [0, *accumulate(widths)]
    shown = {}
    for key, part, (first, last) in zip(encoder.keys, encoder.parts, pairwise(ends), strict=True):
        assert isinstance(part, Standardise)
        values = (z[:, first:last] * part.deviation + part.mean).detach().cpu().numpy()
        like = template.observations[key]
        values = np.rint(values) if np.issubdtype(like.dtype, np.integer) else values
        if part.origin is not None:
            values = values.astype(np.longdouble) + np.array(part.origin, dtype=object).astype(np.longdouble)
        shown[key] = values.reshape(len(values), *like.shape[1:]).astype(like.dtype)
    return shown


def restore_encoder(spec: Mapping[str, Any], tensors: Mapping[str, Array], prefix: str) -> Encoder:
    """The encoder inside a saved model: its tensors are those whose names begin with `prefix`."""
    inner = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    return Encoder.restore(spec, inner)


class ActionScale(Standardise):
    """Action matrices with mean 0 and deviation 1 where continuous; one-hot rows stay."""

    @classmethod
    def of(cls, dataset: Dataset) -> "ActionScale":
        scale = cls(dataset.action_dim)
        if not dataset.discrete:
            matrix = dataset.action_matrix(dataset.actions)
            deviation = matrix.std(axis=0)
            scale.mean.copy_(torch.from_numpy(matrix.mean(axis=0)))
            scale.deviation.copy_(torch.from_numpy(np.where(deviation > 1e-8, deviation, 1.0)))
        return scale

    def forward(self, values: Tensor) -> Tensor:
        return (values - self.mean) / self.deviation


class RewardScale(torch.nn.Module):
    """Rewards with mean 0 and deviation 1, and their range in the data, to which predictions are clipped."""

    mean: Tensor
    deviation: Tensor
    low: Tensor
    high: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name, value in (("mean", 0.0), ("deviation", 1.0), ("low", 0.0), ("high", 0.0)):
            self.register_buffer(name, torch.tensor(value))

    @classmethod
    def of(cls, dataset: Dataset) -> "RewardScale":
        scale, rewards = cls(), dataset.rewards
        numbers = {"mean": rewards.mean(), "low": rewards.min(), "high": rewards.max()}
        numbers["deviation"] = rewards.std() if rewards.std() > 1e-12 else 1.0
        for name, value in numbers.items():
            getattr(scale, name).fill_(float(value))
        return scale

    def forward(self, rewards: Tensor) -> Tensor:
        return (rewards - self.mean) / self.deviation

    def undo(self, standard: Tensor) -> Tensor:
        """In the reward's own unit, clipped to the data's range."""
        return (standard * self.deviation + self.mean).clamp(self.low, self.high)


class Ending(torch.nn.Module):
    """The chance of going on; exactly 1 where no logged episode ended, so that long rollouts do not fade."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.tensor(False))

    @classmethod
    def of(cls, dataset: Dataset) -> "Ending":
        ending = cls()
        ending.seen.fill_(bool(dataset.terminated.any()))
        return ending

    def forward(self, logits: Tensor) -> Tensor:
        return logits.sigmoid() if bool(self.seen) else torch.ones_like(logits)
