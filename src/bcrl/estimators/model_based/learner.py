"""What the training loop drives, for both world models: a batch, its loss, one update."""

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from bcrl.estimators.model_based.parts import Dreamer, OneStep
from bcrl.training import restore_parts, state_of


class Batches(Protocol):
    """The data that a world model learns from."""

    def losses(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Draw a batch; the model's loss terms on it."""
        ...


class WorldLearner:
    """AdamW on random batches, gradients clipped by their norm.

    Args:
        model: what is trained.
        settings: of its training.
        batches: draws a batch and computes the loss.
        steps: updates in all.
        generator: draws batches and the model's latents.
    """

    def __init__(
        self,
        model: nn.Module,
        settings: Dreamer | OneStep,
        batches: Batches,
        steps: int,
        generator: torch.Generator,
    ) -> None:
        self.model, self.settings, self.batches = model, settings, batches
        self.steps, self.generator, self.done = steps, generator, 0
        self.batch_size = settings.rows_per_batch
        self.optimiser = settings.optimiser(model.parameters())

    def step(self) -> dict[str, float | Tensor]:
        for group in self.optimiser.param_groups:
            group["lr"] = self.settings.rate(self.done, self.steps)
        losses = self.batches.losses(self.generator)
        self.optimiser.zero_grad()
        torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), 100.0)
        self.optimiser.step()
        self.done += 1
        return dict(losses)

    def _parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimiser": self.optimiser, "generator": self.generator}

    def state(self) -> dict[str, Any]:
        return state_of(self._parts()) | {"done": self.done}

    def restore(self, state: dict[str, Any]) -> None:
        restore_parts(self._parts(), state)
        self.done = state["done"]
