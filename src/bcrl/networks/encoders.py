"""What an observation becomes: z, from pixels and vectors.

Pixels go through convolutions like those of Chang et al. (2022, appendix "Representation Architecture"),
which are those of SAC-AE and DrQ-v2: x / 255 - 1/2, convolutions 3x3 with `channels` channels and ReLU, then
Linear, LayerNorm and tanh down to `feature_dim` numbers. As in the paper all methods have the same ones. The
paper has 5, its released code 4, the first with stride 2 and the others with stride 1
(`Pixels(conv_layers=5)`); ours are 4 with `STRIDES`, a quarter of the cost. Here the image may have any size:
images too small for unpadded convolutions are padded. Vectors are standardised by the dataset's mean and
deviation and passed on. Several keys are concatenated.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bcrl.data.dataset import Array, Dataset, is_pixels
from bcrl.errors import BadInput, did_you_mean
from bcrl.networks.layers import linear, load_tensors, orthogonal, tensors_of
from bcrl.networks.parts import PIXELS, Pixels

_SMALLEST_MAP = 4
# Images at once on a CPU: the maps of more are fresh pages from the kernel on every call, which cost a third
# of a step.
_CPU_SLICE = 128


class Standardise(nn.Module):
    """(x - mean) / deviation of a vector observation, flattened; columns that never change keep theirs."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))
        self.width = width

    def forward(self, values: Tensor) -> Tensor:
        return (values.flatten(1).to(self.mean.dtype) - self.mean) / self.deviation

    @property
    def z_dim(self) -> int:
        return self.width

    def spec(self) -> dict[str, Any]:
        return {"width": self.width}


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


class Encoder(nn.Module):
    """Observations by key -> z (n, z_dim). Keys that it does not read are ignored."""

    def __init__(self, parts: Mapping[str, Standardise | Convolutions]) -> None:
        super().__init__()
        self.keys = tuple(parts)
        self.parts = nn.ModuleList(parts.values())
        self.z_dim = sum(part.z_dim for part in parts.values())

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        encoded = [part(observations[key]) for key, part in zip(self.keys, self.parts, strict=True)]
        return encoded[0] if len(encoded) == 1 else torch.cat(encoded, dim=1)

    def read(
        self, observations: Mapping[str, Array], device: torch.device | str = "cpu"
    ) -> dict[str, Tensor]:
        """The observations that the encoder reads, as tensors on a device; vectors become float32."""
        return {key: _tensor(observations[key]).to(device) for key in self.keys}

    @property
    def has_pixels(self) -> bool:
        return any(isinstance(part, Convolutions) for part in self.parts)

    def encode(self, observations: Mapping[str, Array]) -> NDArray[Any]:
        """z of arrays as an array, without gradient; on the device on which the encoder is."""
        with torch.no_grad():
            z: Tensor = self(self.read(observations, self.device))
        return np.asarray(z.float().cpu().numpy())

    @property
    def device(self) -> torch.device:
        return next(itertools.chain(self.parameters(), self.buffers())).device

    def table(self, dataset: Dataset) -> Tensor | None:
        """z of all observation rows where nothing in the encoder learns; None on pixels."""
        if self.has_pixels:
            return None
        return torch.from_numpy(encode_rows(self.encode, dataset)).to(self.device)

    def spec(self) -> dict[str, Any]:
        kinds = ["pixels" if isinstance(part, Convolutions) else "vector" for part in self.parts]
        parts = [
            {"key": key, "kind": kind} | part.spec()  # type: ignore[operator]
            for key, kind, part in zip(self.keys, kinds, self.parts, strict=True)
        ]
        return {"kind": "encoder", "parts": parts}

    def tensors(self) -> dict[str, NDArray[Any]]:
        return tensors_of(self)

    @classmethod
    def restore(cls, spec: Mapping[str, Any], tensors: Mapping[str, Array]) -> "Encoder":
        """The encoder that `spec` and `tensors` came from."""
        parts: dict[str, Standardise | Convolutions] = {}
        for part in spec["parts"]:
            if part["kind"] == "vector":
                parts[part["key"]] = Standardise(part["width"])
                continue
            shape = {name: part[name] for name in ("shape", "feature_dim", "channels", "strides")}
            parts[part["key"]] = Convolutions(generator=None, **shape)
        return load_tensors(cls(parts), tensors)


def encoder_for(
    dataset: Dataset,
    *,
    reads: str | tuple[str, ...] | None = None,
    pixels: Pixels = PIXELS,
    crop: int | None = None,
    generator: torch.Generator,
) -> Encoder:
    """An untrained encoder for a dataset's observations.

    Args:
        dataset: gives the shapes, and the mean and deviation of vector keys.
        reads: the key or keys to look at; None takes the pixel keys if there are any, else all vector keys.
        pixels: what the convolutions look like.
        crop: side of the images that the convolutions read; larger ones are cropped in the middle. None = as
            they are.
        generator: draws the weights.
    """
    parts: dict[str, Standardise | Convolutions] = {}
    for key in keys_read(dataset, reads):
        values = dataset.observations[key]
        if is_pixels(values):
            height, width, frame_channels = values.shape[1:]
            height, width = (height, width) if crop is None else (min(height, crop), min(width, crop))
            parts[key] = Convolutions(
                (height, width, frame_channels * dataset.stack),
                feature_dim=pixels.feature_dim,
                channels=pixels.channels,
                strides=pixels.all_strides,
                generator=generator,
            )
        else:
            parts[key] = _fitted(values)
    return Encoder(parts)


def encode_rows(
    encode: Callable[[dict[str, Array]], Any], dataset: Dataset, rows: NDArray[np.int64] | None = None
) -> NDArray[Any]:
    """z of these observation rows of a dataset (None: of all), in chunks that fit in memory.

    Args:
        encode: observations by key -> z, one row each.
        dataset: where the observations are.
        rows: which ones.
    """
    if rows is None:
        rows = np.arange(len(dataset) + dataset.num_episodes)
    # Pixels in smaller chunks: 1024 stacks of 84x84x9 are 65 MB as bytes and 260 MB as floats.
    chunk = 512 if dataset.pixel_keys else 4096
    parts = [rows[first : first + chunk] for first in range(0, len(rows), chunk)]
    return np.concatenate([np.asarray(encode(dataset.observe(part))) for part in parts])


def keys_read(dataset: Dataset, reads: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """The observation keys that a method looks at, checked."""
    if reads is None:
        return dataset.pixel_keys or tuple(dataset.observations)
    wanted = (reads,) if isinstance(reads, str) else reads
    for key in wanted:
        if key not in dataset.observations:
            hint = did_you_mean(key, dataset.observations)
            raise BadInput(f"reads={key!r} is no observation key of this dataset. {hint}")
    return tuple(wanted)


def sees_pixels(dataset: Dataset, reads: str | tuple[str, ...] | None) -> bool:
    """Whether a method that reads these keys has convolutions to train, which makes a step a hundred times
    dearer.
    """
    return any(key in dataset.pixel_keys for key in keys_read(dataset, reads))


def _fitted(values: Array, chunk: int = 65536) -> Standardise:
    """The standardisation of one vector key, from one pass in float64."""
    width = int(np.prod(values.shape[1:]))
    total, squares, shift = np.zeros(width), np.zeros(width), np.zeros(width)
    for first in range(0, len(values), chunk):
        part = np.asarray(values[first : first + chunk], dtype=np.float64).reshape(-1, width)
        if first == 0:
            shift = part.mean(axis=0)
        total += (part - shift).sum(axis=0)
        squares += np.square(part - shift).sum(axis=0)
    count = max(len(values), 1)
    mean = shift + total / count
    deviation = np.sqrt(np.maximum(squares / count - np.square(total / count), 0.0))
    constant = deviation <= 1e-6 * np.maximum(np.abs(mean), 1e-6)
    layer = Standardise(width)
    layer.mean.copy_(torch.from_numpy(mean))
    layer.deviation.copy_(torch.from_numpy(np.where(constant, 1.0, deviation)))
    return layer


def _tensor(values: Array) -> Tensor:
    values = np.ascontiguousarray(values)
    if is_pixels(values):
        return torch.from_numpy(values if values.flags.writeable else values.copy())
    return torch.from_numpy(values.astype(np.float32, copy=not values.flags.writeable))
