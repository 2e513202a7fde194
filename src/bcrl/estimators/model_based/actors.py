"""Who acts in a learned world: the policy itself, or a copy of it that reads the model's own state.

This is the only place where a method calls a policy: imagined states are in no log. What a policy does on
the log is in `question.targets[name].actions`, computed once for all methods.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bcrl.data.dataset import Array, Dataset
from bcrl.errors import BadInput
from bcrl.estimate import Check, FloatArray
from bcrl.estimators.model_based.dreamer import DreamerModel, head
from bcrl.estimators.model_based.rssm import Latent
from bcrl.policies.policy import AnyPolicy, TargetActions, actions_at

State = Any  # of a model, in the model's own form: a vector or a Latent


class Actor(Protocol):
    """Chooses actions in the model."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Observation keys that the model has to show it; none where it reads the model's state."""
        ...

    def act(self, state: State, seen: dict[str, Array]) -> Tensor:
        """One action per row, as an action matrix (n, A)."""
        ...


@dataclass(frozen=True, eq=False)
class PolicyItself:
    """The policy, at what the model shows."""

    policy: AnyPolicy
    template: Dataset
    reads: tuple[str, ...]
    generator: np.random.Generator

    def act(self, state: object, seen: dict[str, Array]) -> Tensor:
        del state
        chosen = actions_at(self.template, self.policy, seen, num_samples=1, generator=self.generator)
        return torch.from_numpy(one_of(chosen.actions, chosen.weights, self.generator))


@dataclass(frozen=True)
class Copy:
    """A policy's copy: a head on the recurrent model's features that was trained to do what the policy does.

    Attributes:
        number: which head of the model is this policy's.
        spread: standard deviation of the policy's own noise, by action dimension.
    """

    number: int
    spread: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class CopyActing:
    """The copy of a policy, at the model's states."""

    net: nn.Module
    spread: Tensor
    discrete: bool
    numpy_generator: np.random.Generator
    generator: torch.Generator
    reads: tuple[str, ...] = ()

    def act(self, state: Latent, seen: object) -> Tensor:
        del seen
        outputs = head(self.net, state.features)
        if not self.discrete:
            return outputs + self.spread * torch.randn(outputs.shape, generator=self.generator)
        chances = outputs.double().clamp_min(1e-6).numpy()
        count = chances.shape[1]
        actions = np.broadcast_to(np.eye(count, dtype=np.float32), (*chances.shape, count))
        chances = chances / chances.sum(axis=1, keepdims=True)
        return torch.from_numpy(one_of(actions, chances, self.numpy_generator))


def one_of(actions: Array, weights: FloatArray, generator: np.random.Generator) -> Array:
    """One of k weighted actions per row, (n, A)."""
    if weights.shape[1] == 1:
        return np.ascontiguousarray(actions[:, 0])
    uniform = generator.random((len(weights), 1))
    pick = (uniform > np.cumsum(weights, axis=1)[:, :-1]).sum(axis=1)
    return np.ascontiguousarray(actions[np.arange(len(weights)), pick])


def policy_keys(dataset: Dataset, policy: AnyPolicy) -> tuple[str, ...]:
    """The observation keys that a policy reads; all of them where it does not say."""
    if policy.reads is None:
        return tuple(dataset.observations)
    return (policy.reads,) if isinstance(policy.reads, str) else tuple(policy.reads)


def keys_to_show(dataset: Dataset, policy: AnyPolicy, can_show: Sequence[str]) -> tuple[str, ...]:
    """What the policy reads, checked against what a model can show."""
    wanted = policy_keys(dataset, policy)
    for key in wanted:
        if key not in can_show:
            raise BadInput(
                f"The policy reads {key!r}, but this model can show {sorted(can_show)} only. "
                "Leave ModelBased's reads out, or let it read that key too."
            )
    return wanted


def action_noise(target: TargetActions) -> tuple[float, ...]:
    """Standard deviation of a policy's actions at one and the same observation, by action dimension."""
    mean = np.einsum("nk,nka->na", target.weights, target.actions)
    square = np.einsum("nk,nka->na", target.weights, np.square(target.actions))
    return tuple(float(x) for x in np.sqrt(np.maximum(square - mean**2, 0.0).mean(axis=0)))


def copy_error(
    model: DreamerModel,
    copy: Copy,
    dataset: Dataset,
    rows: NDArray[np.int64],
    target: TargetActions,
    generator: torch.Generator,
) -> float:
    """Root mean squared error of a policy's copy at these rows, in units of the policy's own deviation."""
    with torch.no_grad():
        features = model.first_state(dataset.observe(rows), generator).features
        guess = head(model.policy_heads[copy.number], features).numpy()
    chosen = target.take(rows)
    truth = np.einsum("nk,nka->na", chosen.weights, chosen.actions).astype(np.float32)
    return float(np.sqrt(np.mean((guess - truth) ** 2) / max(float(truth.var(axis=0).mean()), 1e-12)))


def copy_check(error: float) -> Check:
    return Check(
        "distilled policy",
        error,
        0.1,
        "trust" if error < 0.1 else "caution" if error < 0.4 else "distrust",
        f"The copy of the policy in the model has an error of {error:.2f} of the policy's own deviation.",
    )
