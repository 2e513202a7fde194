"""State actors as simulations ask them, in numpy; their files are bcrl's (bcrl/policies/actor_file.py).

Metadata in such a file (all strings): task, reads, step, return_mean, return_sd, episodes, seeds.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save

from bcrl.errors import BadInput
from bcrl.policies.actor_file import network_of, read_actor, save_actor
from bcrl.policies.files import read_policy_file
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

    def to_bytes(self) -> bytes:
        """The weights alone: the same ones give the same bytes."""
        return bytes(save({name: np.ascontiguousarray(self.tensors[name], np.float32) for name in TENSORS}))

    @classmethod
    def load(cls, path: Path) -> "NumpyActor":
        """Read a state actor's file."""
        network, metadata = read_actor(read_policy_file(path, trust=False))
        tensors = {name: value.numpy() for name, value in network.state_dict().items()}
        if set(tensors) != set(TENSORS):
            raise BadInput(f"{path} holds tensors {sorted(tensors)}; a state actor needs {list(TENSORS)}")
        return cls(tensors, metadata)

    def save(self, path: Path) -> None:
        """Write whole or not at all."""
        network = network_of({name: torch.tensor(self.tensors[name]) for name in TENSORS})
        save_actor(path, network, self.metadata)


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
