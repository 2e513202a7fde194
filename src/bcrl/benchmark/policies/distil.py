"""Distil a state actor into a pixel actor (DAgger, Ross et al. 2011).

    round 0: the teacher acts, with noise; rounds 1, 2, ...: the student acts; every frame seen so far is labelled
    with what the teacher would do in the state behind it, and the student minimises |student(frames) - teacher(state)|^2

Difference from the paper: no mixing of the two policies within a round; random shifts of the frames by up to two pixels.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from bcrl.benchmark.policies.actor import measured
from bcrl.benchmark.rollouts import Behaviour, Episode, run_episode, undiscounted_returns
from bcrl.benchmark.tasks import ControlTask
from bcrl.policies.actor_file import save_actor
from bcrl.policies.actors import PixelActor


@dataclass(frozen=True)
class Distillation:
    """Hyper-parameters."""

    pixels: int = 64
    stack: int = 3
    rounds: int = 6
    episodes: int = 10
    epochs: int = 4
    batch: int = 128
    learning_rate: float = 1e-3
    noise: float = 0.1
    channels: int = 16
    hidden: int = 256
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Student:
    """The pixel network as a policy."""

    network: PixelActor
    stack: int
    reads: str = "pixels"

    def act(self, pixels: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return np.asarray(self.network(torch.from_numpy(pixels)).numpy())


@dataclass
class Lesson:
    """Frames once, and the teacher's action at every step; stacks are made when a batch is taken."""

    stack: int
    frames: list[np.ndarray]
    labels: list[np.ndarray]

    def add(self, episode: Episode, teacher: Any) -> None:  # noqa: ANN401 - any policy that reads the state
        self.frames.append(episode.observations["pixels"])
        self.labels.append(teacher.act(episode.observations["state"]))

    def batches(self, size: int, generator: np.random.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch in random order."""
        rows = [(e, t) for e, labels in enumerate(self.labels) for t in range(len(labels))]
        order = generator.permutation(len(rows))
        for first in range(0, len(rows) - size + 1, size):
            yield self._batch([rows[i] for i in order[first : first + size]])

    def _batch(self, rows: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        back = range(self.stack - 1, -1, -1)
        stacks = [np.concatenate([self.frames[e][max(0, t - k)] for k in back], axis=-1) for e, t in rows]
        return torch.from_numpy(np.stack(stacks)), torch.from_numpy(
            np.stack([self.labels[e][t] for e, t in rows])
        )


def shifted(pixels: Tensor, generator: torch.Generator, by: int = 2) -> Tensor:
    """The batch's frames (n, H, W, C) moved by one random offset, edges repeated."""
    size = pixels.shape[1]
    padded = F.pad(pixels.permute(0, 3, 1, 2).float(), (by,) * 4, mode="replicate").permute(0, 2, 3, 1)
    x, y = torch.randint(2 * by + 1, (2,), generator=generator).tolist()
    return padded[:, y : y + size, x : x + size]


def distil_actor(
    recipe: Distillation,
    task_name: str,
    teacher: Any,  # noqa: ANN401 - any policy that reads the state
    path: Path,
    show: Callable[[dict[str, Any]], None] = lambda news: None,
    seeds: int = 10,
) -> float:
    """Distil, measure on seeds 0, 1, ..., and write the actor's file; returns the mean return."""
    task = ControlTask(task_name, pixels=recipe.pixels)
    generator, numbers = torch.Generator().manual_seed(recipe.seed), np.random.default_rng(recipe.seed)
    image = (recipe.pixels, recipe.pixels, 3 * recipe.stack)
    network = PixelActor.initialised(
        image, task.action_dim, generator, hidden=recipe.hidden, channels=recipe.channels
    ).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    student, lesson = Student(network, recipe.stack), Lesson(recipe.stack, [], [])
    total = recipe.rounds * recipe.epochs
    optimiser = torch.optim.Adam(network.parameters(), recipe.learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda epoch: 0.5 * (1 + np.cos(np.pi * epoch / total))
    )
    for number in range(recipe.rounds):
        behaviour = Behaviour(teacher if number == 0 else student, noise=recipe.noise)
        for episode in range(recipe.episodes):
            lesson.add(run_episode(task, behaviour, (recipe.seed + 1_000, number, episode)), teacher)
            show(
                {
                    "stage": "rolling out",
                    "step": number * recipe.episodes + episode,
                    "steps": recipe.rounds * recipe.episodes,
                }
            )
        for epoch in range(recipe.epochs):
            loss = _epoch(network, optimiser, lesson.batches(recipe.batch, numbers), generator)
            schedule.step()
            show(
                {
                    "stage": "distilling",
                    "step": number * recipe.epochs + epoch + 1,
                    "steps": total,
                    "loss": loss,
                }
            )
    chosen = list(range(seeds))
    returns = undiscounted_returns(task, Behaviour(student, noise=0.0), chosen)
    about = {"task": task_name, "reads": "pixels", "stack": str(recipe.stack), "pixels": str(recipe.pixels)}
    save_actor(path, network, about | measured(returns, chosen))
    return float(returns.mean())


def _epoch(
    network: PixelActor,
    optimiser: torch.optim.Optimizer,
    batches: Iterator[tuple[Tensor, Tensor]],
    generator: torch.Generator,
) -> float:
    losses = []
    for pixels, labels in batches:
        loss = F.mse_loss(network(shifted(pixels, generator)), labels)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(float(loss.detach()))
    return float(np.mean(losses))
