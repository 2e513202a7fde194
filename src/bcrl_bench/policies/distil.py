"""Distil a state actor into a pixel actor (DAgger, Ross et al. 2011).

    round 0: the teacher acts, with noise; rounds 1, 2, ...: the student acts; every frame seen so far is
    labelled with what the teacher would do in the state behind it, and the student minimises
    |student(frames) - teacher(state)|^2

Difference from the paper: no mixing of the two policies within a round; random shifts of the frames by up to
two pixels. The learning rate falls by a cosine over all samples, so the last round, which has the most
frames, still learns. After a round `<file>.learner.pt` holds the networks and the actions taken so far: a
stopped distillation replays them and goes on.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from bcrl.errors import BadInput
from bcrl.policies.actor_file import save_actor
from bcrl.policies.actors import PixelActor
from bcrl.policies.load import load_policy
from bcrl.training import read_checkpoint, write_checkpoint
from bcrl.writing import writable_folder
from bcrl_bench.policies.actor import measured
from bcrl_bench.rollouts import Behaviour, Episode, run_episode, undiscounted_returns
from bcrl_bench.tasks import ControlTask


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

    def rate(self, number: int, epoch: int) -> float:
        """Learning rate of an epoch: a cosine in the samples seen, of which round k has k + 1 parts."""
        share = (number * (number + 1) / 2 + (number + 1) * epoch / self.epochs) / (
            self.rounds * (self.rounds + 1) / 2
        )
        return self.learning_rate * 0.5 * (1 + float(np.cos(np.pi * share)))


@dataclass(frozen=True, eq=False)
class Student:
    """The pixel network as a policy."""

    network: PixelActor
    stack: int
    reads: str = "pixels"

    def act(self, pixels: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return np.asarray(self.network(torch.from_numpy(pixels)).numpy())


@dataclass(frozen=True, eq=False)
class Replay:
    """Logged actions, one after the other."""

    actions: Iterator[np.ndarray]
    reads: str = "state"

    def act(self, states: np.ndarray) -> np.ndarray:
        return next(self.actions)[None]


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


@dataclass
class Classroom:
    """The student, its optimiser and every episode's actions so far; `round` is the next one."""

    recipe: Distillation
    task: ControlTask
    teacher: Any
    checkpoint: Path
    show: Callable[[dict[str, Any]], None]

    def __post_init__(self) -> None:
        recipe = self.recipe
        image = (recipe.pixels, recipe.pixels, 3 * recipe.stack)
        self.network = PixelActor.initialised(
            image,
            self.task.action_dim,
            torch.Generator().manual_seed(recipe.seed),
            hidden=recipe.hidden,
            channels=recipe.channels,
        ).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimiser = torch.optim.Adam(self.network.parameters(), recipe.learning_rate)
        self.lesson, self.actions, self.round = Lesson(recipe.stack, [], []), list[Tensor](), 0

    def parts(self) -> dict[str, Any]:
        """Everything with a state_dict."""
        return {"network": self.network, "optimiser": self.optimiser}

    def resume(self) -> None:
        """Load the last round's end, where there is one, and play its episodes again for their frames."""
        state = read_checkpoint(self.checkpoint)
        if state is None:
            return
        if state["recipe"] != json.dumps(asdict(self.recipe)):
            raise BadInput(f"{self.checkpoint} was begun with other settings; delete it to begin again.")
        for name, part in self.parts().items():
            part.load_state_dict(state[name])
        for index, actions in enumerate(state["actions"]):
            self._roll(Behaviour(Replay(iter(actions.numpy())), noise=0.0), index)
        self.round = len(self.actions) // self.recipe.episodes

    def save(self) -> None:
        """Whole or not at all."""
        state = {name: part.state_dict() for name, part in self.parts().items()}
        write_checkpoint(
            self.checkpoint, {**state, "actions": self.actions, "recipe": json.dumps(asdict(self.recipe))}
        )

    def run_round(self) -> None:
        """Roll out by the teacher (first) or the student, then learn from everything seen."""
        recipe, number = self.recipe, self.round
        actor = self.teacher if number == 0 else Student(self.network, recipe.stack)
        earned = []
        for index in range(number * recipe.episodes, (number + 1) * recipe.episodes):
            earned.append(self._roll(Behaviour(actor, noise=recipe.noise), index))
            steps = recipe.rounds * recipe.episodes
            self.show({"stage": "rolling out", "step": index + 1, "steps": steps})
        numbers = np.random.default_rng((recipe.seed, number))
        generator = torch.Generator().manual_seed(int(numbers.integers(2**31)))
        for epoch in range(recipe.epochs):
            self.optimiser.param_groups[0]["lr"] = recipe.rate(number, epoch)
            loss = _epoch(self.network, self.optimiser, self.lesson.batches(recipe.batch, numbers), generator)
            step, steps = number * recipe.epochs + epoch + 1, recipe.rounds * recipe.epochs
            news = {"stage": "distilling", "step": step, "steps": steps, "loss": loss}
            self.show(news | {"return": float(np.mean(earned))})
        self.round += 1

    def _roll(self, behaviour: Behaviour, index: int) -> float:
        number, episode = divmod(index, self.recipe.episodes)
        seen = run_episode(self.task, behaviour, (self.recipe.seed + 1_000, number, episode))
        self.lesson.add(seen, self.teacher)
        self.actions.append(torch.from_numpy(seen.actions))
        return float(seen.rewards.sum())


def distil_actor(
    recipe: Distillation,
    task_name: str,
    teacher: Any,  # noqa: ANN401 - any policy that reads the state
    path: Path,
    show: Callable[[dict[str, Any]], None] = lambda news: None,
    seeds: int = 50,
) -> float:
    """Distil, write the actor's file, measure what lies there on seeds 0, 1, ...; returns the mean return."""
    writable_folder(path.parent)
    task = ControlTask(task_name, pixels=recipe.pixels)
    room = Classroom(recipe, task, teacher, path.with_suffix(".learner.pt"), show)
    room.resume()
    while room.round < recipe.rounds:
        room.run_round()
        room.save()
    about = {"task": task_name, "reads": "pixels", "stack": str(recipe.stack), "pixels": str(recipe.pixels)}
    about["step"] = str(sum(len(actions) for actions in room.actions))
    # On other kinds of processors convolutions have other last bits.
    about["processor"] = torch.backends.cpu.get_cpu_capability()
    network = room.network.half()  # the file keeps half precision; what is measured is what it holds
    save_actor(path, network, about)
    behaviour, returns = Behaviour(load_policy(path), noise=0.0), list[float]()
    for seed in range(seeds):
        returns += undiscounted_returns(task, behaviour, [seed]).tolist()
        show({"stage": "measuring", "step": seed + 1, "steps": seeds, "return": float(np.mean(returns))})
    save_actor(path, network, about | measured(np.array(returns), list(range(seeds))))
    room.checkpoint.unlink()
    return float(np.mean(returns))


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
