"""Layers with orthogonal weights, the MLP on (z, action), and networks as plain arrays.

Weights are drawn from the generator that is passed in; the global generator is never touched. Networks are
saved as plain arrays and a JSON-able spec, never pickled.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bcrl.data.dataset import Array
from bcrl.networks.parts import Activation

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
        for number, (inputs, outputs) in enumerate(pairwise(widths), start=1):
            modules.append(linear(inputs, outputs, generator))
            if layer_norm and number < layers:
                modules.append(nn.LayerNorm(outputs))
            modules.append(_ACTIVATIONS[activation]())
        self.mlp = nn.Sequential(*(modules if activate_last else modules[:-1]))

    def forward(self, z: Tensor, actions: Tensor) -> Tensor:
        features: Tensor = self.mlp(torch.cat([z, actions], dim=1))
        return features

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
