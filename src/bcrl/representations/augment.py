"""Random changes to observations that should not change a representation.

Pixels: a shift (pad by repeating the border, crop back: the whole field of view stays), or CURL's original
random crop of a larger render; SPR also changes the brightness. Vectors, in units of their deviation: each
row times 1 + scale u, u uniform in [-1, 1] (RAD's random amplitude), plus Gaussian noise.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bcrl.data.dataset import Dataset
from bcrl.data.select import split_units
from bcrl.networks import Encoder, random_shift

Seen = Tensor | Mapping[str, Tensor]


@dataclass(frozen=True)
class Augmentation:
    """What is done to observations.

    Attributes:
        shift: pixels that an image moves at most, where it is not cropped.
        crop: side of the random crop; None shifts.
        noise: standard deviation added to vectors.
        scale: largest relative change of a vector's size.
        intensity: deviation of the random factor on a whole image, at most two deviations from 1, as in SPR.
    """

    shift: int
    crop: int | None = None
    noise: float = 0.0
    scale: float = 0.0
    intensity: float = 0.0

    def __call__(self, seen: Seen, generator: torch.Generator) -> Seen:
        """Observations by key before the encoder, or z where the encoder has nothing to learn."""
        if isinstance(seen, Tensor):
            return self._vector(seen, generator)
        return {
            key: self._image(value, generator) if value.dtype == torch.uint8 else value
            for key, value in seen.items()
        }

    def _image(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        if self.crop is not None:
            pixels = random_crop(pixels, self.crop, generator)
        elif self.shift:
            pixels = random_shift(pixels, self.shift, generator)
        return self._brightened(pixels, generator) if self.intensity else pixels

    def _brightened(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """One factor for all frames of an observation."""
        factor = 1.0 + self.intensity * torch.randn(len(pixels), generator=generator).clamp(-2.0, 2.0)
        bright = pixels * factor.to(pixels.device)[:, None, None, None]
        return bright.round().clamp(0.0, 255.0).to(torch.uint8)

    def _vector(self, z: Tensor, generator: torch.Generator) -> Tensor:
        size = 1.0 + self.scale * (2.0 * torch.rand(len(z), 1, generator=generator) - 1.0)
        return z * size.to(z.device) + self.noise * torch.randn(z.shape, generator=generator).to(z.device)


def random_crop(pixels: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """A random square of `side` pixels of each image (n, H, W, C); as in CURL, never at the last offset."""
    n, height, width, _ = pixels.shape
    if min(height, width) <= side:
        raise ValueError(f"cannot crop {side} pixels out of {height} x {width}")
    top = torch.randint(height - side, (n, 1), generator=generator).to(pixels.device)
    left = torch.randint(width - side, (n, 1), generator=generator).to(pixels.device)
    along = torch.arange(side, device=pixels.device)
    image = torch.arange(n, device=pixels.device)[:, None, None]
    return pixels[image, (top + along)[:, :, None], (left + along)[:, None, :]]


def default_shift(dataset: Dataset) -> int:
    """DrQ's 4 pixels of 84, for images of another size."""
    sides = [min(dataset.observations[key].shape[1:3]) for key in dataset.pixel_keys]
    return max(1, round(4 * min(sides) / 84)) if sides else 0


class Learner(Protocol):
    """CURL or SPR."""

    @property
    def held_out(self) -> float: ...

    @property
    def published(self) -> bool: ...


def learned_rows(dataset: Dataset, recipe: Learner, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Transitions that figures are measured on, and those trained on; as published all are both."""
    if recipe.published:
        return np.arange(len(dataset)), np.arange(len(dataset))
    return split_units(dataset, recipe.held_out, seed)


class Views:
    """Observation rows as the encoder reads them: z from a table if it learns nothing, else images by key."""

    def __init__(self, dataset: Dataset, encoder: Encoder) -> None:
        self.dataset, self.encoder, self.device = dataset, encoder, encoder.device
        self.z = encoder.table(dataset)

    def at(self, rows: NDArray[np.int64]) -> Seen:
        if self.z is not None:
            return self.z[torch.from_numpy(rows).to(self.device)]
        return self.encoder.read(self.dataset.observe(rows), self.device)


def encode(encoder: nn.Module, seen: Seen) -> Tensor:
    """z of what `Views` gave."""
    if isinstance(seen, Tensor):
        return seen
    z: Tensor = encoder(seen)
    return z


def effective_rank(features: Tensor) -> float:
    """(sum lambda)^2 / sum lambda^2 of the covariance's eigenvalues: how many directions features use."""
    centred = (features - features.mean(dim=0)).double()
    covariance = centred.T @ centred
    total = float(torch.trace(covariance)) ** 2
    return total / float(covariance.square().sum()) if total > 0.0 else 0.0
