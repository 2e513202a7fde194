"""DrQ-v2 from pixels (Yarats et al. 2021).

    y = sum_{i<n} g^i r_i + g^n min_k Qt_k(h_n, a'),   a' = clip(mu(h_n) + clip(N(0, sd), -c, c))
    h = encoder(shift(frames))
    critics and encoder: sum_k mean (Q_k(h, a) - y)^2
    actor (encoder held fixed): -mean min_k Q_k(h, mu + noise)

The defaults are the published ones for a GPU; `DrQv2.cpu()` is a small network on small frames for two CPU
cores. Difference from the released code: the random shift is an exact crop where theirs interpolates.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bcrl.errors import BadInput
from bcrl.networks import shifted
from bcrl.policies.actor_file import save_actor
from bcrl.policies.actors import PixelActor, flat_width
from bcrl.training import read_checkpoint, write_checkpoint
from bcrl.writing import writable_folder
from bcrl_bench.policies.actor import measured
from bcrl_bench.policies.distil import Student
from bcrl_bench.policies.frames import Batch, FrameBuffer
from bcrl_bench.rollouts import Behaviour, undiscounted_returns
from bcrl_bench.tasks import ControlTask


@dataclass(frozen=True)
class DrQv2:
    """Hyper-parameters; steps are agent steps (after action repeat)."""

    pixels: int = 84
    stack: int = 3
    action_repeat: int = 2
    learning_rate: float = 1e-4
    batch: int = 256
    discount: float = 0.99
    reward_scale: float = 1.0
    n_step: int = 3
    tau: float = 0.01
    feature_dim: int = 50
    hidden: int = 1024
    channels: int = 32
    conv_layers: int = 4
    first_std: float = 1.0
    last_std: float = 0.1
    std_steps: int = 500_000
    std_clip: float = 0.3
    random_steps: int = 2_000
    update_every: int = 2
    buffer: int = 1_000_000
    pad: int = 4
    evaluate_every: int = 5_000
    episodes: int = 10
    seed: int = 0

    @classmethod
    def cpu(cls, seed: int = 0) -> "DrQv2":
        """Learns cartpole-balance in minutes on one core: small frames and networks, an update for every
        step.

        Eight control steps an action: between frames of two a slow pole does not move by a pixel of 48, and
        its speed, which the agent must see, is lost. The discount looks 160 control steps ahead, several
        times as long as a pole takes to fall, and rewards of at most 1 keep values near 20, which a young
        network reaches in few updates.
        """
        return cls(
            pixels=48,
            action_repeat=8,
            batch=96,
            learning_rate=5e-4,
            discount=0.95,
            reward_scale=1 / 8,
            hidden=256,
            channels=16,
            conv_layers=3,
            std_steps=4_000,
            random_steps=1_000,
            update_every=1,
            buffer=50_000,
            pad=2,
            evaluate_every=1_000,
            episodes=5,
            seed=seed,
        )

    def std(self, step: int) -> float:
        """Linear schedule of the exploration noise."""
        share = min(1.0, step / self.std_steps)
        return (1 - share) * self.first_std + share * self.last_std


class Critic(nn.Module):
    """A trunk of its own and two value heads."""

    def __init__(self, flat: int, actions: int, config: DrQv2) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(flat, config.feature_dim), nn.LayerNorm(config.feature_dim), nn.Tanh()
        )
        self.heads = nn.ModuleList(self._head(config.feature_dim + actions, config.hidden) for _ in range(2))

    @staticmethod
    def _head(inputs: int, hidden: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)
        )

    def forward(self, encoded: Tensor, actions: Tensor) -> Tensor:
        """Values (2, n)."""
        joined = torch.cat([self.trunk(encoded), actions], -1)
        return torch.stack([head(joined)[:, 0] for head in self.heads])


def random_shift(pixels: Tensor, pad: int, generator: torch.Generator) -> Tensor:
    """Each image (n, H, W, C) uint8 moved by its own offset in -pad..pad, edges repeated; float (n, C, H,
    W).
    """
    offsets = torch.randint(2 * pad + 1, (2, len(pixels)), generator=generator)
    # Moved as bytes: four times as fast as floats.
    return shifted(pixels, offsets.T - pad).permute(0, 3, 1, 2).float()


class Agent:
    """Networks and optimisers; `update` takes one step of each."""

    def __init__(self, config: DrQv2, action_dim: int) -> None:
        self.config, self.generator = config, torch.Generator().manual_seed(config.seed)
        image = (config.pixels, config.pixels, 3 * config.stack)
        sizes = {"feature_dim": config.feature_dim, "hidden": config.hidden}
        sizes |= {"conv_layers": config.conv_layers, "channels": config.channels}
        self.actor = PixelActor.initialised(image, action_dim, self.generator, **sizes)
        flat = flat_width(config.pixels, config.pixels, config.conv_layers, config.channels)
        self.critic, self.target = (Critic(flat, action_dim, config) for _ in range(2))
        for part in self.critic.modules():
            if isinstance(part, nn.Linear):
                nn.init.orthogonal_(part.weight, 1.0, self.generator)
                nn.init.zeros_(part.bias)
        self.target.load_state_dict(self.critic.state_dict())
        self.target.requires_grad_(False)
        head = [*self.actor.trunk.parameters(), *self.actor.policy.parameters()]
        body = [*self.actor.encoder.parameters(), *self.critic.parameters()]
        self.actor_step = torch.optim.Adam(head, config.learning_rate, fused=True)
        self.critic_step = torch.optim.Adam(body, config.learning_rate, fused=True)

    def encode(self, images: Tensor) -> Tensor:
        """Flattened convolutions of float images (n, C, H, W) in 0..255."""
        hidden = images / 255.0 - 0.5
        for conv in self.actor.encoder["conv"]:  # type: ignore[attr-defined]
            hidden = torch.relu(conv(hidden))
        return hidden.flatten(1)

    def noisy(self, encoded: Tensor, std: float) -> Tensor:
        """The actor's action with clipped noise; the gradient passes as if nothing had been clipped."""
        mean: Tensor = self.actor.policy(self.actor.trunk(encoded))
        noise = (std * torch.randn(mean.shape, generator=self.generator)).clamp(
            -self.config.std_clip, self.config.std_clip
        )
        action = mean + noise
        return action + (action.clamp(-1 + 1e-6, 1 - 1e-6) - action).detach()

    def explore(self, pixels: np.ndarray, std: float) -> np.ndarray:
        """One action with unclipped noise."""
        with torch.no_grad():
            mean = self.actor(torch.from_numpy(pixels[None]))[0]
            noisy = mean + std * torch.randn(mean.shape, generator=self.generator)
        return np.asarray(noisy.clamp(-1, 1).numpy())

    def update(self, batch: Batch, std: float) -> dict[str, float]:
        """Critic with encoder, actor, slow target: in that order."""
        encoded = self.encode(random_shift(batch.pixels, self.config.pad, self.generator))
        with torch.no_grad():
            ahead = self.encode(random_shift(batch.nexts, self.config.pad, self.generator))
            goal = batch.rewards + batch.discounts * self.target(ahead, self.noisy(ahead, std)).amin(0)
        critic_loss = (self.critic(encoded, batch.actions) - goal).square().mean(1).sum()
        self.critic_step.zero_grad()
        critic_loss.backward()
        self.critic_step.step()
        held = encoded.detach()
        actor_loss = -self.critic(held, self.noisy(held, std)).amin(0).mean()
        self.actor_step.zero_grad()
        actor_loss.backward()
        self.actor_step.step()
        with torch.no_grad():
            torch._foreach_lerp_(
                list(self.target.parameters()), list(self.critic.parameters()), self.config.tau
            )
        return {"critic_loss": float(critic_loss.detach()), "value": float(goal.mean())}

    def parts(self) -> dict[str, Any]:
        """Everything with a state_dict, for the checkpoint."""
        names = ("actor", "critic", "target", "actor_step", "critic_step")
        return {name: getattr(self, name) for name in names}


class Session:
    """The environment, the buffer and the agent together."""

    def __init__(self, config: DrQv2, task_name: str) -> None:
        self.config, self.name, self.step = config, task_name, 0
        self.task, self.judge = (
            ControlTask(
                task_name,
                pixels=config.pixels,
                action_repeat=config.action_repeat,
                limit=1000 // config.action_repeat,
            )
            for _ in range(2)
        )
        self.agent = Agent(config, self.task.action_dim)
        self.numbers = np.random.default_rng(config.seed)
        image = (config.pixels, config.pixels, 3)
        self.buffer = FrameBuffer(
            config.buffer,
            image,
            self.task.action_dim,
            stack=config.stack,
            n_step=config.n_step,
            discount=config.discount,
        )
        self._begin()

    def _begin(self) -> None:
        self.buffer.start_episode(self.task.reset(seed=int(self.numbers.integers(2**31)))[0]["pixels"])

    def advance(self) -> None:
        """One agent step into the buffer."""
        if self.step < self.config.random_steps:
            action = self.numbers.uniform(-1, 1, self.task.action_dim).astype(np.float32)
        else:
            action = self.agent.explore(self.buffer.latest(), self.config.std(self.step))
        observation, reward, terminated, truncated, _ = self.task.step(action)
        last = terminated or truncated
        felt = self.config.reward_scale * reward
        self.buffer.add(action, felt, observation["pixels"], terminated=terminated, last=last)
        if last:
            self._begin()

    def evaluate(self, folder: Path) -> float:
        """Measure the deterministic actor and add it to the trail."""
        seeds = list(range(1_000, 1_000 + self.config.episodes))
        returns = undiscounted_returns(
            self.judge, Behaviour(Student(self.agent.actor, self.config.stack), noise=0.0), seeds
        )
        about = {
            "task": self.name,
            "reads": "pixels",
            "stack": str(self.config.stack),
            "pixels": str(self.config.pixels),
            "action_repeat": str(self.config.action_repeat),
            "step": str(self.step),
        }
        save_actor(
            folder / "trail" / f"{self.step:07d}.safetensors",
            self.agent.actor,
            about | measured(returns, seeds),
        )
        return float(returns.mean())

    def save(self, path: Path) -> None:
        """Everything but the buffer, whole or not at all."""
        state = {name: part.state_dict() for name, part in self.agent.parts().items()}
        state |= {
            "step": self.step,
            "generator": self.agent.generator.get_state(),
            "config": asdict(self.config),
        }
        write_checkpoint(path, state)

    def resume(self, path: Path, refill: int = 5_000) -> bool:
        """Load what is there, then refill the buffer by the loaded policy; False if nothing is."""
        state = read_checkpoint(path)
        if state is None:
            return False
        if state.get("config") != asdict(self.config):
            raise BadInput(f"{path} was begun with other settings of DrQ-v2; choose another folder.")
        for name, part in self.agent.parts().items():
            part.load_state_dict(state[name])
        self.agent.generator.set_state(state["generator"])
        self.step = state["step"]
        self.numbers = np.random.default_rng([self.config.seed, self.step])
        for _ in range(min(refill, self.step)):
            self.advance()
        return True


def train_from_pixels(
    config: DrQv2,
    task: str,
    folder: Path,
    *,
    steps: int,
    goal: float,
    show: Callable[[dict[str, Any]], None] = lambda line: None,
) -> float:
    """Train until the goal or the last step; returns the best evaluation's mean return."""
    session, checkpoint = Session(config, task), folder / "learner.pt"
    writable_folder(folder)
    random = undiscounted_returns(session.judge, Behaviour(None), list(range(config.episodes))).mean()
    show({"step": 0, "random_policy": float(random)})
    session.resume(checkpoint)
    best, metrics, began, first = -np.inf, dict[str, float](), time.monotonic(), session.step
    while session.step < steps and best < goal:
        session.advance()
        session.step += 1
        if session.step >= config.random_steps and session.step % config.update_every == 0:
            metrics = session.agent.update(
                session.buffer.sample(config.batch, session.numbers), config.std(session.step)
            )
        if session.step % config.evaluate_every == 0:
            mean = session.evaluate(folder)
            session.save(checkpoint)
            rate = (session.step - first) / (time.monotonic() - began)
            line = {
                "step": session.step,
                "return": mean,
                "random_policy": float(random),
                "rate": round(rate, 1),
            } | metrics
            with (folder / "curve.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
            show(line)
            best = max(best, mean)
    return float(best)
