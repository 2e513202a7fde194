"""Train a state actor on a task: explore, update, evaluate every 10k steps, keep the trail; stop and resume
at any time.

The folder holds `curve.jsonl` (one line an evaluation), `trail/<step>.safetensors` (actors with what they
earned) and `learner.pt` (networks, optimisers, generators, written at each evaluation; read with
weights_only).
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bcrl.errors import BadInput
from bcrl.training import read_checkpoint, write_checkpoint
from bcrl.writing import writable_folder
from bcrl_bench.policies.actor import NumpyActor, measured
from bcrl_bench.policies.demonstrations import Demonstration, load_demonstrations
from bcrl_bench.policies.episodes import Episodes
from bcrl_bench.policies.hindsight import relabel
from bcrl_bench.policies.mirror import Mirror
from bcrl_bench.policies.replay import Beside, Buffer
from bcrl_bench.policies.sac import SAC, Learner
from bcrl_bench.policies.shaping import shaped
from bcrl_bench.policies.starts import FIRST_FRONTIER
from bcrl_bench.rollouts import Behaviour, undiscounted_returns
from bcrl_bench.tasks import ControlTask

REFILL = 10_000  # agent steps by the loaded policy after a resume


@dataclass(frozen=True)
class Training:
    """How to train on one task."""

    task: str
    """Task name, for example cheetah-run."""
    folder: Path
    """Where the trail, the curve and the resumable state are kept."""
    steps: int = 1_000_000
    """Agent steps in all (each is two control steps)."""
    goal: float = 900.0
    """Stop once an evaluation's mean return reaches this."""
    sac: SAC = field(default_factory=SAC)
    """The learner's hyper-parameters."""
    assisted: float = 0.0
    """Share of training episodes that begin near success (see starts.py), or on the way of a demonstration.
    """
    assisted_steps: int = 200
    """Length of those episodes."""
    hindsight: int = 0
    """Copies of each episode with the target moved to where it went (finger-turn only, see hindsight.py)."""
    shaping: float = 0.0
    """Scale of the potential added to the reward (see shaping.py); returns are always those of the task."""
    demonstrations: Path | None = None
    """Folder of planned demonstrations (see planning.py); half of every batch is drawn from them."""
    harness: float = 0.0
    """First level of the humanoid's harness (see harness.py), 0 for none; all episodes then have
    `assisted_steps` steps.
    """
    mirror: bool = False
    """Half of every batch as a mirror shows it (humanoid only, see mirror.py)."""
    initial: Path | None = None
    """Begin with this actor: it fills the buffer, and the critics learn `sac.critic_first` updates before it
    changes.
    """
    evaluate_every: int = 10_000
    """Agent steps between evaluations."""
    episodes: int = 5
    """Episodes in an evaluation."""


class Session:
    """One training process: the environment, the buffer and the learner together."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self.task = ControlTask(training.task, pixels=None)
        self.judge = ControlTask(training.task, pixels=None)
        sac, states, actions = training.sac, self.task.state_dim, self.task.action_dim
        self.learner = Learner(sac, states, actions)
        self.mirror = Mirror.of(self.task) if training.mirror else None
        self.buffer = Buffer(sac.buffer, states, actions, sac.n_step, sac.discount, self.mirror)
        folder = training.demonstrations
        self.shown = [] if folder is None else load_demonstrations(folder, training.task)
        self.memory = Beside(self.buffer, self._felt_by(self.shown)) if self.shown else self.buffer
        self.generator = np.random.default_rng(training.sac.seed)
        self.step = 0
        self.episodes = Episodes(
            self.task,
            self.shown,
            self.generator,
            assisted=training.assisted,
            assisted_steps=training.assisted_steps,
            harness=training.harness,
        )
        self.path: list[tuple[np.ndarray, np.ndarray]] = []
        self.total, self.square, self.seen = np.zeros(states), np.zeros(states), 0
        for one in self.shown:
            self._notice(one.states)
        self.state = self.episodes.start_episode()

    def _felt_by(self, shown: list[Demonstration]) -> Buffer:
        """The demonstrations as the learner would have felt them."""
        rows, sac = sum(len(one.actions) for one in shown), self.training.sac
        buffer = Buffer(
            rows, self.task.state_dim, self.task.action_dim, sac.n_step, sac.discount, self.mirror
        )
        for one in shown:
            for i, action in enumerate(one.actions):
                felt = self._felt(one.states[i], float(one.rewards[i]), one.states[i + 1], False)
                buffer.add(one.states[i], action, felt, one.states[i + 1], False, i == len(one.actions) - 1)
        return buffer

    def advance(self, random: bool) -> None:
        """One agent step into the buffer and into the running normalisation."""
        if random:
            action = self.generator.uniform(-1, 1, self.task.action_dim).astype(np.float32)
        else:
            action = self.learner.explore(self.state)
        after, reward, terminated, last = self.episodes.step(action)
        felt = self._felt(self.state, reward, after, terminated)
        self.buffer.add(self.state, action, felt, after, terminated, last)
        self._notice(after[None])
        self.path.append((self.state, action))
        self.state = after
        if last:
            self._relabel(terminated)
            if self.step >= self.training.sac.random_steps:
                self.episodes.judge()
            self.state = self.episodes.start_episode()

    def _notice(self, states: np.ndarray) -> None:
        """Count states (n, d) in the running normalisation."""
        self.total = self.total + states.sum(0, dtype=np.float64)
        self.square = self.square + np.square(states, dtype=np.float64).sum(0)
        self.seen += len(states)

    def _felt(self, state: np.ndarray, reward: float, after: np.ndarray, terminated: bool) -> float:
        """The reward that the learner is told of."""
        training = self.training
        return shaped(
            training.task, training.shaping, training.sac.discount, (state, reward, after), terminated
        )

    def _relabel(self, terminated: bool) -> None:
        states, actions = (
            np.stack([state for state, _ in self.path] + [self.state]),
            [a for _, a in self.path],
        )
        self.path = []
        for _ in range(self.training.hindsight):
            copy = relabel(self.training.task, states, self.generator)
            if copy is None:
                return
            moved, rewards = copy
            for i, action in enumerate(actions):
                last = i == len(actions) - 1
                ended = terminated and last
                felt = self._felt(moved[i], float(rewards[i]), moved[i + 1], ended)
                self.buffer.add(moved[i], action, felt, moved[i + 1], ended, last)

    def refresh_normalisation(self) -> None:
        """Copy the running mean and scale into the learner."""
        mean = self.total / self.seen
        scale = np.sqrt(np.maximum(self.square / self.seen - mean**2, 0.0))
        self.learner.mean = torch.from_numpy(mean).float()
        self.learner.scale = torch.from_numpy(np.maximum(scale, 1e-2)).float()

    def evaluate(self) -> tuple[NumpyActor, float]:
        """The actor as it would be shipped, and its mean return."""
        seeds = list(range(1_000, 1_000 + self.training.episodes))
        about = {"task": self.training.task, "reads": "state", "step": str(self.step)}
        actor = NumpyActor(self.learner.export(), about)
        returns = undiscounted_returns(self.judge, Behaviour(actor, noise=0.0), seeds)
        return NumpyActor(actor.tensors, about | measured(returns, seeds)), float(returns.mean())

    def begin_with(self, path: Path) -> None:
        """Fill the buffer by an actor, normalise by what it saw, and go on from its weights."""
        tensors = NumpyActor.load(path).tensors
        self.learner.adopt(tensors)
        for _ in range(REFILL):
            self.advance(random=False)
        self.refresh_normalisation()
        self.learner.adopt(tensors)
        self.step = self.training.sac.random_steps

    def save(self, path: Path) -> None:
        """Everything but the buffer, written whole or not at all."""
        learner = self.learner
        state: dict[str, Any] = {name: module.state_dict() for name, module in learner.modules()}
        for name in ("critic_step", "actor_step", "alpha_step"):
            state[name] = getattr(learner, name).state_dict()
        state |= {"log_alpha": learner.log_alpha.detach(), "generator": learner.generator.get_state()}
        state |= {"step": self.step, "updates": learner.updates, "seen": self.seen}
        state |= {"frontier": self.episodes.frontier, "level": self.episodes.level}
        state |= {"demonstrations": [one.seed for one in self.shown]}
        state |= {"total": torch.from_numpy(self.total), "square": torch.from_numpy(self.square)}
        write_checkpoint(path, state)

    def resume(self, path: Path) -> bool:
        """Load what is there, then refill the buffer by the loaded policy; False if nothing is."""
        state = read_checkpoint(path)
        if state is None:
            return False
        before, now = state.get("demonstrations", []), [one.seed for one in self.shown]
        if before and before != now:
            raise BadInput(
                f"{path} learned beside {len(before)} demonstrations, seeds {before[0]} to {before[-1]}; got "
                f"{len(now)}. "
                "Give it the same folder as it had."
            )
        learner = self.learner
        for name, module in learner.modules():
            module.load_state_dict(state[name])
        for name in ("critic_step", "actor_step", "alpha_step"):
            getattr(learner, name).load_state_dict(state[name])
        learner.log_alpha.data.copy_(state["log_alpha"])
        learner.generator.set_state(state["generator"])
        self.step, learner.updates, self.seen = state["step"], state["updates"], state["seen"]
        self.total, self.square = state["total"].numpy(), state["square"].numpy()
        self.episodes.frontier = state.get("frontier", FIRST_FRONTIER)
        self.episodes.level = self.episodes.pulled = state.get("level", self.training.harness)
        self.generator = np.random.default_rng([self.training.sac.seed, self.step])
        self.episodes.generator = self.generator
        self.refresh_normalisation()
        for _ in range(min(REFILL, self.step)):
            self.advance(random=False)
        return True


def train(training: Training, show: Callable[[dict[str, Any]], None] = lambda line: None) -> float:
    """Train until the goal or the last step; returns the best evaluation's mean return."""
    session, checkpoint = Session(training), training.folder / "learner.pt"
    writable_folder(training.folder)
    if not session.resume(checkpoint) and training.initial is not None:
        session.begin_with(training.initial)
    best, due, started, first, metrics = -np.inf, 0.0, time.monotonic(), session.step, dict[str, float]()
    while session.step < training.steps and best < training.goal:
        warm = session.step >= training.sac.random_steps
        session.advance(random=not warm)
        session.step += 1
        if session.step % 1_000 == 0:
            session.refresh_normalisation()
        due += training.sac.updates_per_step if warm else 0.0
        while due >= 1.0:
            metrics, due = session.learner.update(session.memory), due - 1.0
        if session.step % training.evaluate_every == 0:
            actor, mean = session.evaluate()
            actor.save(training.folder / "trail" / f"{session.step:07d}.safetensors")
            session.save(checkpoint)
            rate = (session.step - first) / (time.monotonic() - started)
            line = {"step": session.step, "return": mean, "returns": json.loads(actor.metadata["returns"])}
            line |= {
                "rate": round(rate, 1),
                "frontier": session.episodes.frontier,
                "level": round(session.episodes.level, 3),
                **{name: round(value, 4) for name, value in metrics.items()},
            }
            with (training.folder / "curve.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
            show(line)
            best = max(best, mean)
    (training.folder / "settings.json").write_text(json.dumps(asdict(training), default=str, indent=1))
    return best
