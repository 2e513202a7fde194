"""Networks on z: what an observation becomes (`Encoder`), and what z becomes with an action (`HeadNet`).

Vectors are standardised by the dataset's mean and deviation and passed on; pixels go through the convolutions
of pixels.py. Several keys are concatenated. Weights are orthogonal, drawn from the generator that is passed
in; the global generator is never touched. Networks are saved as plain arrays and a JSON-able spec, never
pickled.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bcrl.data.dataset import Array, Dataset, is_pixels
from bcrl.errors import BadInput, did_you_mean
from bcrl.networks.parts import PIXELS, Activation, Pixels

if TYPE_CHECKING:
    from bcrl.networks.pixels import Convolutions

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "tanh": nn.Tanh,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
}
Net = TypeVar("Net", bound=nn.Module)
Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


def linear(inputs: int, outputs: int, generator: torch.Generator | None, gain: float = 1.0) -> nn.Linear:
    """A linear layer with orthogonal weights and no bias; without a generator its numbers are left to be
    filled in.
    """
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs)  # type: ignore[no-untyped-call]
    return orthogonal(layer, generator, gain)


def orthogonal(layer: Layer, generator: torch.Generator | None, gain: float) -> Layer:
    """The layer with orthogonal weights and no bias, if there is a generator to draw them from."""
    if generator is not None:
        nn.init.orthogonal_(layer.weight, gain, generator=generator)
        assert layer.bias is not None
        nn.init.zeros_(layer.bias)
    return layer


class HeadNet(nn.Module):
    """An MLP on (z, action): `layers` linear layers, the last one `dim` wide; `Head` explains the other
    settings.
    """

    def __init__(
        self,
        z_dim: int,
        action_dim: int,
        dim: int,
        *,
        hidden: int = 256,
        layers: int = 3,
        activation: Activation = "relu",
        activate_last: bool = False,
        layer_norm: bool = False,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        self.z_dim, self.action_dim, self.dim, self.hidden, self.layers = (
            z_dim,
            action_dim,
            dim,
            hidden,
            layers,
        )
        self.activation: Activation = activation
        self.activate_last, self.layer_norm = activate_last, layer_norm
        widths = [z_dim + action_dim, *[hidden] * (layers - 1), dim]
        modules: list[nn.Module] = []
        for number, (inputs, outputs) in enumerate(itertools.pairwise(widths), start=1):
            modules.append(linear(inputs, outputs, generator))
            if layer_norm and number < layers:
                modules.append(nn.LayerNorm(outputs))
            modules.append(_ACTIVATIONS[activation]())
        self.mlp = nn.Sequential(*(modules if activate_last else modules[:-1]))

    def forward(self, z: Tensor, actions: Tensor) -> Tensor:
        """(n, dim); actions are rows (n, action_dim), or the numbers (n,) of one-hot ones."""
        if not actions.is_floating_point():
            chosen: Tensor = self.mlp[1:](self.from_state(z) + self.of_action[actions])
            return chosen
        features: Tensor = self.mlp(torch.cat([z, actions], dim=1))
        return features

    def from_state(self, z: Tensor) -> Tensor:
        """The state's part of what the first layer gives: it is linear, so the action's is a sum away."""
        first = self._first
        return nn.functional.linear(z, first.weight[:, : self.z_dim], first.bias)

    @property
    def of_action(self) -> Tensor:
        """Each one-hot action's part of what the first layer gives, (action_dim, hidden)."""
        return self._first.weight[:, self.z_dim :].T

    @property
    def _first(self) -> nn.Linear:
        first = self.mlp[0]
        assert isinstance(first, nn.Linear)
        return first

    def spec(self) -> dict[str, Any]:
        names = (
            "z_dim",
            "action_dim",
            "dim",
            "hidden",
            "layers",
            "activation",
            "activate_last",
            "layer_norm",
        )
        return {"kind": "head"} | {name: getattr(self, name) for name in names}

    def tensors(self) -> dict[str, NDArray[Any]]:
        return tensors_of(self)

    @classmethod
    def restore(cls, spec: Mapping[str, Any], tensors: Mapping[str, Array]) -> "HeadNet":
        """The head that `spec` and `tensors` came from."""
        fields = {name: value for name, value in spec.items() if name != "kind"}
        return load_tensors(cls(**fields, generator=None), tensors)


def tensors_of(module: nn.Module) -> dict[str, NDArray[Any]]:
    """A module's weights and buffers as plain arrays."""
    return {
        name: value.detach().cpu().contiguous().numpy().copy() for name, value in module.state_dict().items()
    }


def load_tensors(module: Net, tensors: Mapping[str, Array]) -> Net:
    """Fill a module with arrays of `tensors_of`."""
    module.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in tensors.items()})
    return module


@torch.no_grad()
def follow(slow: nn.Module, fast: nn.Module, share: float) -> None:
    """Move every weight of `slow` by this share towards `fast`."""
    for mine, other in zip(slow.parameters(), fast.parameters(), strict=True):
        mine.lerp_(other, share)


class Standardise(nn.Module):
    """(x - mean) / deviation of a vector observation, flattened; columns that never change keep theirs.

    Numbers whose differences float32 would lose are read around an `origin`, which is subtracted before.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, width: int, origin: list[int] | list[float] | None = None) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))
        self.width, self.origin = width, origin

    def forward(self, values: Tensor) -> Tensor:
        return (values.flatten(1).to(self.mean.dtype) - self.mean) / self.deviation

    @property
    def z_dim(self) -> int:
        return self.width

    def spec(self) -> dict[str, Any]:
        return {"width": self.width} | ({} if self.origin is None else {"origin": self.origin})


class Encoder(nn.Module):
    """Observations by key -> z (n, z_dim). Keys that it does not read are ignored."""

    def __init__(self, parts: "Mapping[str, Standardise | Convolutions]") -> None:
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
        origins = [getattr(part, "origin", None) for part in self.parts]
        return {
            key: _tensor(observations[key], origin).to(device)
            for key, origin in zip(self.keys, origins, strict=True)
        }

    @property
    def has_pixels(self) -> bool:
        return any(not isinstance(part, Standardise) for part in self.parts)

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
        kinds = ["vector" if isinstance(part, Standardise) else "pixels" for part in self.parts]
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
        from bcrl.networks.pixels import Convolutions

        parts: dict[str, Standardise | Convolutions] = {}
        for part in spec["parts"]:
            if part["kind"] == "vector":
                parts[part["key"]] = Standardise(part["width"], part.get("origin"))
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
    from bcrl.networks.pixels import Convolutions  # made of the layers of this file

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
    width, origin = int(np.prod(values.shape[1:])), _origin(values)
    total, squares, shift = np.zeros(width), np.zeros(width), np.zeros(width)
    for first in range(0, len(values), chunk):
        part = np.asarray(_around(values[first : first + chunk], origin), dtype=np.float64).reshape(-1, width)
        if first == 0:
            shift = part.mean(axis=0)
        total += (part - shift).sum(axis=0)
        squares += np.square(part - shift).sum(axis=0)
    count = max(len(values), 1)
    mean = shift + total / count
    deviation = np.sqrt(np.maximum(squares / count - np.square(total / count), 0.0))
    constant = deviation <= 1e-6 * np.maximum(np.abs(mean), 1e-6)
    layer = Standardise(width, origin)
    layer.mean.copy_(torch.from_numpy(mean))
    layer.deviation.copy_(torch.from_numpy(np.where(constant, 1.0, deviation)))
    return layer


def _origin(values: Array, chunk: int = 65536) -> list[int] | list[float] | None:
    """The first row, 0 in columns that float32 holds well enough; None where it holds all of them.

    Well enough is a thousandth of the smallest range within a chunk.
    """
    if len(values) == 0 or values.dtype.kind not in "iuf" or values.dtype.itemsize < 8:
        return None
    flat = values.reshape(len(values), -1)
    parts = [flat[first : first + chunk] for first in range(0, len(flat), chunk)]
    low, high = (
        np.min([part.min(axis=0) for part in parts], 0),
        np.max([part.max(axis=0) for part in parts], 0),
    )
    step = np.finfo(np.float32).eps * np.maximum(
        np.abs(low.astype(np.float64)), np.abs(high.astype(np.float64))
    )
    far = (low != high) & (step > 1e-3 * (high.astype(np.longdouble) - low.astype(np.longdouble)))
    return np.where(far, flat[0], 0).tolist() if far.any() else None


def _around(values: Array, origin: list[int] | list[float] | None) -> Array:
    """The numbers around an origin; wide floats hold every int64 on the way."""
    if origin is None:
        return values
    around = np.array(origin, dtype=object).astype(np.longdouble).reshape(values.shape[1:])
    return np.asarray(values.astype(np.longdouble) - around, dtype=np.float64)


def _tensor(values: Array, origin: list[int] | list[float] | None = None) -> Tensor:
    values = np.ascontiguousarray(_around(values, origin))
    if is_pixels(values):
        return torch.from_numpy(values if values.flags.writeable else values.copy())
    return torch.from_numpy(values.astype(np.float32, copy=not values.flags.writeable))
