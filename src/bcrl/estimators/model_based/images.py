"""Dreamer's convolutions for images of any size (kernel 4, stride 2, doubling channels), and the way back.

64 x 64 gives 31, 14, 6, 2 on the way down. The way up takes the same sizes back with transposed
convolutions of the same kernels; Dreamer-v2 goes up from 1 x 1 with kernels 5, 5, 6, 6 and takes 64 x 64
only.
"""

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from bcrl.networks import linear

_KERNEL, _LAYERS = 4, 4
Layer = TypeVar("Layer", nn.Conv2d, nn.ConvTranspose2d)


def sizes_down(side: int) -> list[int]:
    """Side of the map after each convolution, beginning with the image's own; stops before a side under 2."""
    sizes = [side]
    while len(sizes) <= _LAYERS and (sizes[-1] - _KERNEL) // 2 + 1 >= 2:
        sizes.append((sizes[-1] - _KERNEL) // 2 + 1)
    return sizes


def _plan(shape: Sequence[int]) -> tuple[list[int], list[int]]:
    """Heights and widths on the way down, cut to the same number of convolutions."""
    heights, widths = sizes_down(shape[0]), sizes_down(shape[1])
    common = min(len(heights), len(widths))
    return heights[:common], widths[:common]


class ImageEncoder(nn.Module):
    """(n, H, W, C) uint8 -> (n, embed_dim)."""

    def __init__(self, shape: Sequence[int], depth: int, generator: torch.Generator | None) -> None:
        super().__init__()
        heights, widths = _plan(shape)
        channels, layers = shape[2], []
        for level in range(len(heights) - 1):
            layers += [_conv(channels, depth * 2**level, generator), nn.ELU()]
            channels = depth * 2**level
        self.net = nn.Sequential(*layers)
        self.embed_dim = channels * heights[-1] * widths[-1]

    def forward(self, pixels: Tensor) -> Tensor:
        images = pixels.permute(0, 3, 1, 2).float() / 255.0 - 0.5
        embedded: Tensor = self.net(images).flatten(1)
        return embedded


class ImageDecoder(nn.Module):
    """(n, inputs) -> mean of one frame (n, H, W, C), in units of 255 less one half."""

    def __init__(
        self, inputs: int, shape: Sequence[int], depth: int, generator: torch.Generator | None
    ) -> None:
        super().__init__()
        heights, widths = _plan(shape)
        levels = len(heights) - 1
        channels = [shape[2], *[depth * 2**level for level in range(levels)]]
        self.first = (channels[-1], heights[-1], widths[-1])
        self.dense = linear(inputs, self.first[0] * self.first[1] * self.first[2], generator)
        layers: list[nn.Module] = []
        for level in range(levels, 0, -1):
            spare = tuple(
                sides[level - 1] - (2 * (sides[level] - 1) + _KERNEL) for sides in (heights, widths)
            )
            layers.append(_conv_up(channels[level], channels[level - 1], spare, generator))
            layers.append(nn.ELU())
        self.net = nn.Sequential(*layers[:-1])

    def forward(self, features: Tensor) -> Tensor:
        images: Tensor = self.net(self.dense(features).view(-1, *self.first))
        return images.permute(0, 2, 3, 1)


def to_frames(images: Tensor) -> Tensor:
    """Decoded means as uint8 frames."""
    return ((images + 0.5) * 255.0).round().clamp(0.0, 255.0).to(torch.uint8)


def _conv(inputs: int, outputs: int, generator: torch.Generator | None) -> nn.Conv2d:
    layer: nn.Conv2d = nn.utils.skip_init(  # type: ignore[no-untyped-call]
        nn.Conv2d, inputs, outputs, _KERNEL, stride=2
    )
    return _glorot(layer, generator)


def _conv_up(
    inputs: int, outputs: int, spare: tuple[int, ...], generator: torch.Generator | None
) -> nn.ConvTranspose2d:
    layer: nn.ConvTranspose2d = nn.utils.skip_init(  # type: ignore[no-untyped-call]
        nn.ConvTranspose2d, inputs, outputs, _KERNEL, stride=2, output_padding=spare
    )
    return _glorot(layer, generator)


def _glorot(layer: Layer, generator: torch.Generator | None) -> Layer:
    if generator is not None:
        nn.init.xavier_uniform_(layer.weight, generator=generator)
        assert layer.bias is not None
        nn.init.zeros_(layer.bias)
    return layer
