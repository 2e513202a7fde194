"""Safetensors files of our own actors, read and written: weights and a few words of metadata, nothing that
could run."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor
from torch.distributions import Distribution, Independent, Normal

from bcrl.data.dataset import Array
from bcrl.errors import BadInput
from bcrl.opening import parse_json
from bcrl.policies.actors import PixelActor, StateActor
from bcrl.policies.files import PolicyFile
from bcrl.policies.kinds import Deterministic, Stochastic
from bcrl.policies.policy import Options
from bcrl.writing import atomic_write

IMAGES_AT_ONCE = 256  # bounds the memory of the first convolution
UNIT = (np.array(-1.0, np.float32), np.array(1.0, np.float32))


@dataclass(frozen=True, eq=False)
class Actor:
    """An actor's network as a function of numpy observations; `stochastic`
    and `noise` make it answer with a distribution."""

    network: StateActor | PixelActor
    file: Path
    options: Options

    def __call__(self, observations: Any) -> Array | Distribution:  # noqa: ANN401
        if self.options.stats is not None:
            observations = self.options.stats(observations)
        shape = tuple(getattr(observations, "shape", (0,)))[1:]
        with torch.no_grad():
            if isinstance(self.network, PixelActor):
                actions = self._look(self.network, observations, shape)
            else:
                states = self._states(self.network, observations, shape)
                if self.options.stochastic:
                    return self.network.distribution(states)
                actions = self.network(states)
        noise = self.options.noise
        return Independent(Normal(actions, noise), 1) if noise > 0.0 else actions.numpy()

    def _look(self, network: PixelActor, observations: Any, shape: tuple[int, ...]) -> Tensor:  # noqa: ANN401
        if not network.fits(shape) or observations.dtype != np.uint8:
            raise self._misfit(
                f"uint8 images of {network.inputs} channels in the size it was trained on", observations
            )
        frames = torch.as_tensor(np.require(observations, requirements=["C", "W"]))
        return torch.cat([network(part) for part in torch.split(frames, IMAGES_AT_ONCE)])

    def _states(self, network: StateActor, observations: Any, shape: tuple[int, ...]) -> Tensor:  # noqa: ANN401
        width = network.state_dim
        if shape != (width,):
            raise self._misfit(f"vectors of {width} numbers", observations)
        return torch.as_tensor(np.require(observations, np.float32, ["C", "W"]))

    def _misfit(self, expected: str, observations: Any) -> BadInput:  # noqa: ANN401
        got = (
            f"{observations.dtype} of shape {observations.shape}"
            if hasattr(observations, "shape")
            else f"a {type(observations).__name__}; say which key it reads: reads='key'"
        )
        return BadInput(f"{self.file} reads {expected}; got {got}. Is this policy for another task?")


def load_actor(file: PolicyFile, options: Options) -> Deterministic | Stochastic:
    """The policy in a safetensors file of ours; the file's own `reads` holds unless another is given."""
    options.only("one of our actors", "stats", "stochastic", "noise")
    network, metadata = read_actor(file)
    if options.stochastic and isinstance(network, PixelActor):
        raise BadInput(
            f"{file.path} is a pixel actor, which has no distribution of its own; noise=0.1 makes it random."
        )
    source: dict[str, Any] = {
        "respond": Actor(network, file.path, options),
        "reads": options.reads if options.reads is not None else metadata.get("reads"),
        "stack": _stack(file, network, metadata),
        **options.source(file),
    }
    if options.stochastic:
        return Stochastic(**source)
    return Stochastic(bounds=UNIT, **source) if options.noise > 0.0 else Deterministic(**source)


def read_actor(file: PolicyFile) -> tuple[StateActor | PixelActor, dict[str, str]]:
    """The network in a safetensors file of ours, in evaluation mode, and the file's metadata."""
    try:
        tensors = load_tensors(file.content)
    except SafetensorError as error:
        raise BadInput(f"{file.path} is no safetensors file: {error}. Is it damaged?") from error
    header = parse_json(_header(file.content), str(file.path), "a safetensors file")
    try:
        network = network_of({name: value.float() for name, value in tensors.items()})
    except (KeyError, IndexError, RuntimeError, ValueError) as error:
        reason = re.sub(r"\s+", " ", str(error))[:200]
        raise BadInput(
            f"{file.path} holds no actor of ours ({reason}); expected latent_pi.*, mu.*, log_std.* or "
            "encoder.conv.*, trunk.*, policy.*. Wrap another network in a function, or export it to ONNX."
        ) from error
    return network, header.get("__metadata__", {})


def _header(content: bytes) -> str:
    return content[8 : 8 + int.from_bytes(content[:8], "little")].decode()  # safetensors saw that it is UTF-8


def network_of(tensors: Mapping[str, Tensor]) -> StateActor | PixelActor:
    """The network whose tensors these are, built without touching any random generator."""
    kind: type[StateActor] | type[PixelActor] = (
        PixelActor if "encoder.conv.0.weight" in tensors else StateActor
    )
    with torch.device("meta"):
        network = kind.shaped_as(tensors)
    network.load_state_dict(tensors, assign=True)
    network.eval()
    return network


def save_actor(path: Path, network: StateActor | PixelActor, metadata: Mapping[str, str]) -> None:
    """Write an actor, whole or not at all.

    Metadata: reads, and for pixels stack, besides what the maker wants to say.
    """
    tensors = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
    with atomic_write(path) as file:
        file.write(save_tensors(tensors, dict(metadata)))


def _stack(file: PolicyFile, network: StateActor | PixelActor, metadata: Mapping[str, str]) -> int:
    if isinstance(network, StateActor):
        return 1
    stack = metadata.get("stack", str(max(1, network.inputs // 3)))
    if not stack.isdigit() or int(stack) < 1:
        raise BadInput(f"{file.path} says stack={stack!r} in its metadata; expected a whole number from 1.")
    return int(stack)
