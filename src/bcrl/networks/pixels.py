"""Pixels: the convolutions that read them, and images moved about at random (DrQ, Kostrikov et al. 2020).

The convolutions are like those of Chang et al. (2022, appendix "Representation Architecture"), which are
those of SAC-AE and DrQ-v2: x / 255 - 1/2, convolutions 3x3 with `channels` channels and ReLU, then Linear,
LayerNorm and tanh down to `feature_dim` numbers. As in the paper all methods have the same ones. The paper
has 5, its released code 4, the first with stride 2 and the others with stride 1 (`Pixels(conv_layers=5)`);
ours are 4 with `STRIDES`, a quarter of the cost. Here the image may have any size: images too small for
unpadded convolutions are padded.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bcrl.networks.encoders import linear, orthogonal

_SMALLEST_MAP = 4
# Images at once on a CPU: the maps of more are fresh pages from the kernel on every call, which cost a third
# of a step.
_CPU_SLICE = 128


class Convolutions(nn.Module):
    """The paper's pixel encoder: (n, H, W, C) uint8 -> (n, feature_dim) in (-1, 1)."""

    def __init__(
        self,
        shape: Sequence[int],
        *,
        feature_dim: int,
        channels: int,
        strides: Sequence[int],
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        self.shape, self.feature_dim, self.channels = tuple(shape), feature_dim, channels
        self.strides = tuple(strides)
        height, width, inputs = self.shape
        padding = (
            0 if min(_map_size(side, self.strides, 0) for side in (height, width)) >= _SMALLEST_MAP else 1
        )
        layers: list[nn.Module] = []
        for stride in self.strides:
            conv: nn.Conv2d = nn.utils.skip_init(
                nn.Conv2d, inputs, channels, 3, stride=stride, padding=padding
            )  # type: ignore[no-untyped-call]
            layers += [orthogonal(conv, generator, math.sqrt(2.0)), nn.ReLU()]
            inputs = channels
        # A batch of NHWC bytes permuted to NCHW has the channels_last layout for free.
        self.convolutions = nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        area = _map_size(height, self.strides, padding) * _map_size(width, self.strides, padding)
        flat = linear(channels * area, feature_dim, generator)
        self.trunk = nn.Sequential(flat, nn.LayerNorm(feature_dim), nn.Tanh())

    def forward(self, pixels: Tensor) -> Tensor:
        if pixels.device.type != "cpu" or len(pixels) <= _CPU_SLICE:
            return self._encode(pixels)
        return torch.cat([self._encode(part) for part in torch.split(pixels, _CPU_SLICE)])

    def _encode(self, pixels: Tensor) -> Tensor:
        images = self._centre(pixels).permute(0, 3, 1, 2).to(next(self.parameters()).dtype)
        maps = self.convolutions(images / 255.0 - 0.5)
        # Flattening in the maps' own memory order costs no copy.
        encoded: Tensor = self.trunk(maps.permute(0, 2, 3, 1).flatten(1))
        return encoded

    def _centre(self, pixels: Tensor) -> Tensor:
        """The middle of images larger than the encoder's own."""
        top, left = ((have - own) // 2 for have, own in zip(pixels.shape[1:3], self.shape[:2], strict=True))
        return pixels[:, top : top + self.shape[0], left : left + self.shape[1]] if top or left else pixels

    @property
    def z_dim(self) -> int:
        return self.feature_dim

    def spec(self) -> dict[str, Any]:
        return {
            "shape": list(self.shape),
            "feature_dim": self.feature_dim,
            "channels": self.channels,
            "strides": list(self.strides),
        }


def _map_size(side: int, strides: Sequence[int], padding: int) -> int:
    for stride in strides:
        side = (side + 2 * padding - 3) // stride + 1
    return side


def random_shift(pixels: Tensor, pad: int, generator: torch.Generator) -> Tensor:
    """Each image moved by up to `pad` pixels both ways, its border repeated: DrQ's augmentation. (n, H, W, C)
    in and out.
    """
    moves = torch.randint(-pad, pad + 1, (len(pixels), 2), generator=generator)
    return shifted(pixels, moves.to(pixels.device))


def shifted(pixels: Tensor, moves: Tensor) -> Tensor:
    """Image i (n, H, W, C) moved by moves[i] rows and columns, its border repeated."""
    n, height, width, _ = pixels.shape
    rows = (torch.arange(height, device=pixels.device) + moves[:, :1]).clamp(0, height - 1)
    columns = (torch.arange(width, device=pixels.device) + moves[:, 1:]).clamp(0, width - 1)
    image = torch.arange(n, device=pixels.device)
    return pixels[image[:, None, None], rows[:, :, None], columns[:, None, :]]
