"""Our own actors: a tanh-Gaussian network that reads `state`, kept as a safetensors file with its measured
return.

Tensors `latent_pi.{0,2}.{weight,bias}`, `mu.{weight,bias}`, `log_std.{weight,bias}`; the action of the
evaluated policy is tanh(mu(relu(relu(state)))), in [-1, 1]. Metadata (all strings): task, reads, step,
return_mean, return_sd, episodes, seeds.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

from bcrl.errors import BadInput
from bcrl.writing import atomic_write
from bcrl_bench.bits import FirstLayer

LAYERS = ("latent_pi.0", "latent_pi.2", "mu", "log_std")
ZERO = np.float32(0)
TENSORS = tuple(f"{layer}.{part}" for layer in LAYERS for part in ("weight", "bias"))


@dataclass(frozen=True)
class NumpyActor:
    """The deterministic policy tanh(mu(s)) in numpy: at batch 1 a third of torch's time."""

    tensors: Mapping[str, np.ndarray]
    metadata: Mapping[str, str]
    reads: str = "state"

    @property
    def task(self) -> str:
        """The task the actor was trained on."""
        return self.metadata["task"]

    def act(self, observations: np.ndarray | Mapping[str, np.ndarray]) -> np.ndarray:
        """Actions (n, A) of states (n, S), or of observation dicts that hold `state`."""
        states = observations if isinstance(observations, np.ndarray) else observations[self.reads]
        states = states.astype(np.float32, copy=False)
        inner, weight, bias = self._layers
        if len(states) == 1:  # a step of a simulation: the same bits on every machine, and sooner
            hidden = self._first(states[0])
            hidden += inner[0][1]
            np.maximum(hidden, ZERO, out=hidden)
            for inner_weight, inner_bias in inner[1:]:
                hidden = inner_weight.dot(hidden)
                hidden += inner_bias
                np.maximum(hidden, ZERO, out=hidden)
            hidden = weight.dot(hidden)
            hidden += bias
            return np.asarray(np.tanh(hidden)[None])
        hidden = states
        for inner_weight, inner_bias in inner:
            hidden = np.maximum(hidden @ inner_weight.T + inner_bias, ZERO)
        return np.asarray(np.tanh(hidden @ weight.T + bias))

    @cached_property
    def _first(self) -> FirstLayer:
        return FirstLayer(self.tensors["latent_pi.0.weight"])

    @cached_property
    def _layers(self) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray, np.ndarray]:
        """The hidden layers' weights and biases, and the last one's."""
        *inner, last = ((self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]) for name in LAYERS[:3])
        return inner, *last

    def to_bytes(self, metadata: dict[str, str] | None = None) -> bytes:
        """The file's bytes. Without metadata (whose order safetensors shuffles) the same weights give the
        same bytes.
        """
        tensors = {name: np.ascontiguousarray(self.tensors[name], dtype=np.float32) for name in TENSORS}
        return bytes(save(tensors, metadata))


def save_actor(path: Path, actor: NumpyActor) -> None:
    """Write whole or not at all."""
    with atomic_write(path) as file:
        file.write(actor.to_bytes(dict(actor.metadata)))


def load_actor(path: Path) -> NumpyActor:
    """Read one of our actors."""
    if not path.is_file():
        raise BadInput(f"no actor file at {path}; shipped ones are listed by `bcrl policy evaluate --help`")
    with safe_open(path, framework="numpy") as file:
        names = set(file.keys())
        if not names.issuperset(TENSORS):
            raise BadInput(f"{path} holds tensors {sorted(names)}; a state actor needs {list(TENSORS)}")
        tensors = {name: file.get_tensor(name) for name in TENSORS}
        return NumpyActor(tensors, dict(file.metadata() or {}))


def measured(returns: np.ndarray, seeds: list[int]) -> dict[str, str]:
    """The metadata fields that say what an actor earned: undiscounted, deterministic action, one episode a
    seed.
    """
    return {
        "return_mean": f"{returns.mean():.3f}",
        "return_sd": f"{returns.std(ddof=1) if len(returns) > 1 else 0.0:.3f}",
        "episodes": str(len(returns)),
        "seeds": json.dumps(seeds),
        "returns": json.dumps([round(float(value), 6) for value in returns]),
    }
