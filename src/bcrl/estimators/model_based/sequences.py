"""Windows of episodes for the recurrent model, and the learner that the training loop drives."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bcrl.data.dataset import Dataset
from bcrl.estimators.model_based.dreamer import Sequences, WorldModel
from bcrl.policies.policy import TargetActions


def windows(
    dataset: Dataset,
    first: NDArray[np.int64],
    episodes: NDArray[np.int64],
    length: int,
    means: NDArray[np.float32],
    keys: Sequence[str],
) -> Sequences:
    """The `length` observations from row `first` on of each of these episodes; rows after an episode's end are not valid.

    Args:
        dataset: pixels or vectors, actions, rewards.
        first: first observation row of each window, (B,).
        episodes: episode of each window, (B,).
        length: observations per window.
        means: mean target action of each policy at every row, (N + E, policies, A).
        keys: observation keys that the model sees or decodes.
    """
    last = dataset.offsets[episodes + 1] + episodes
    rows = first[:, None] + np.arange(length)
    valid = rows <= last[:, None]
    rows = np.minimum(rows, last[:, None])
    # The transition that led to row i of episode e is i - e - 1; windows begin without one.
    led = np.maximum(rows - episodes[:, None] - 1, 0)
    flat = rows.ravel()
    seen = dataset.observe(flat)
    observations = {key: torch.from_numpy(np.ascontiguousarray(seen[key])) for key in keys}
    return Sequences(
        {key: value if value.dtype == torch.uint8 else value.float() for key, value in observations.items()},
        torch.from_numpy(dataset.action_matrix(dataset.actions[led.ravel()])).view(*rows.shape, -1),
        torch.from_numpy(dataset.rewards[led].astype(np.float32)),
        torch.from_numpy((~dataset.terminated[led]).astype(np.float32)),
        torch.from_numpy(valid.astype(np.float32)),
        torch.from_numpy(means[flat]),
    )


def mean_actions(dataset: Dataset, targets: Sequence[TargetActions]) -> NDArray[np.float32]:
    """Each policy's mean action (probabilities where discrete) at every row, (N + E, policies, A)."""
    rows = len(dataset) + dataset.num_episodes
    if not targets:
        return np.zeros((rows, 0, dataset.action_dim), dtype=np.float32)
    means = [np.einsum("nk,nka->na", target.weights, target.actions) for target in targets]
    return np.stack(means, axis=1).astype(np.float32)


def draw_windows(
    dataset: Dataset, episodes: NDArray[np.int64], count: int, length: int, generator: torch.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First rows and episodes of random windows: episodes by their number of observations, then a place inside."""
    sizes = dataset.lengths[episodes] + 1
    weights = torch.from_numpy(sizes.astype(np.float64))
    picked = episodes[torch.multinomial(weights, count, replacement=True, generator=generator).numpy()]
    room = np.maximum(dataset.lengths[picked] + 2 - length, 1)
    place = np.floor(torch.rand(count, generator=generator, dtype=torch.float64).numpy() * room)
    return dataset.offsets[picked] + picked + place.astype(np.int64), picked


class DreamerLearner:
    """What the loop trains: AdamW on windows, gradients clipped by their norm."""

    def __init__(
        self,
        model: WorldModel,
        dataset: Dataset,
        episodes: NDArray[np.int64],
        targets: Sequence[TargetActions],
        *,
        lr: float,
        cosine: bool,
        steps: int,
        batch_size: int,
        length: int,
        generator: torch.Generator,
    ) -> None:
        self.model, self.dataset, self.episodes, self.generator = model, dataset, episodes, generator
        self.lr, self.cosine, self.steps, self.length = lr, cosine, steps, length
        self.windows, self.batch_size = batch_size, batch_size * length
        self.means = mean_actions(dataset, targets)
        # Dreamer-v2 shrinks weights by 1e-6 a step whatever the rate is.
        self.optimiser = torch.optim.AdamW(model.parameters(), lr, eps=1e-5, weight_decay=1e-6 / lr)
        self.done = 0

    def step(self) -> dict[str, float | Tensor]:
        if self.cosine:
            for group in self.optimiser.param_groups:
                group["lr"] = 0.5 * self.lr * (1.0 + math.cos(math.pi * self.done / self.steps))
        first, episodes = draw_windows(self.dataset, self.episodes, self.windows, self.length, self.generator)
        batch = windows(self.dataset, first, episodes, self.length, self.means, self.model.keys)
        losses = self.model.losses(batch, self.generator)
        self.optimiser.zero_grad()
        torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), 100.0)
        self.optimiser.step()
        self.done += 1
        return dict(losses)

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "generator": self.generator.get_state(),
            "done": self.done,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.generator.set_state(state["generator"])
        self.done = state["done"]
