"""Descent in Q and lambda, ascent in zeta, on the regularised Lagrangian of Yang et al. (2020), as the training loop wants it.

    L = (1 - g) E[Q(s0, pi)] + lambda + E_D[ zeta(s, a) (alpha_r r + g Q(s', pi) - Q(s, a) - lambda) ]
        + alpha_q E_D[|Q|^p / p] - alpha_zeta E_D[|zeta|^p / p]

A world that ends goes to an absorbing state with reward 0, whose Q and zeta are one number each; without it the occupancy of
a policy that ends early would not add up to 1 and lambda would ask for the impossible. Q is scaled by 1 / (1 - g), rewards
are standardised, learning rates follow a half cosine, and an average of zeta's weights over the last steps is read out.
"""

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bcrl.networks import Activation, HeadNet

_LAST_LAYER = 0.1


@dataclass(frozen=True, eq=False)
class DiceData:
    """Everything the Lagrangian reads, on one device.

    Attributes:
        z: encoded observation rows, (N + E, dz).
        rows: row of s of each transition, (N,); s' is one row further.
        actions: logged actions, (N, A), standardised where continuous.
        rewards: standardised, (N,).
        terminated: (N,) bool.
        chosen: the policy's actions at every row, (N + E, k, A), standardised where continuous.
        weights: of these actions, (N + E, k).
        start_z, start_chosen, start_weights: the same at the start states, n0 rows.
        exact: average over all k actions (discrete) instead of drawing one.
        noise: standard deviation of the noise on drawn actions, in their standardised unit.
    """

    z: Tensor
    rows: Tensor
    actions: Tensor
    rewards: Tensor
    terminated: Tensor
    chosen: Tensor
    weights: Tensor
    start_z: Tensor
    start_chosen: Tensor
    start_weights: Tensor
    exact: bool
    noise: float


@dataclass(frozen=True)
class DiceRule:
    """The switches and rates of a step; the fields are those of `BestDICE`."""

    discount: float
    alpha_q: float
    alpha_zeta: float
    alpha_r: float
    positive: bool
    normalised: bool
    power: float
    hidden: int
    layers: int
    activation: Activation
    lr_q: float
    lr_zeta: float
    momentum: float
    batch_size: int
    steps: int
    cosine: bool
    average: float
    clip_value: float | None


class Critics(nn.Module):
    """Q and zeta with their values in the absorbing state, and lambda."""

    def __init__(self, inputs: tuple[int, int], rule: DiceRule, generator: torch.Generator) -> None:
        super().__init__()
        shape: dict[str, Any] = {"hidden": rule.hidden, "layers": rule.layers, "activation": rule.activation}
        self.q_net, self.zeta_net = (HeadNet(*inputs, 1, generator=generator, **shape) for _ in range(2))
        self.end_q, self.end_zeta = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.ones(1))
        self.multiplier = nn.Parameter(torch.zeros(1))
        self.scale, self.positive = 1.0 / (1.0 - rule.discount), rule.positive
        with torch.no_grad():
            for net, begin in ((self.q_net, 0.0), (self.zeta_net, 1.0)):
                last = net.mlp[-1]
                assert isinstance(last, nn.Linear)
                last.weight.mul_(_LAST_LAYER)
                last.bias.fill_(begin)

    def q(self, z: Tensor, actions: Tensor) -> Tensor:
        outputs: Tensor = self.q_net(z, actions)
        return self.scale * outputs[:, 0]

    def zeta(self, z: Tensor, actions: Tensor) -> Tensor:
        return self._sign(self.zeta_net(z, actions)[:, 0])

    def q_at_end(self) -> Tensor:
        return self.scale * self.end_q

    def zeta_at_end(self) -> Tensor:
        return self._sign(self.end_zeta)

    def _sign(self, x: Tensor) -> Tensor:
        return x.square() if self.positive else x

    def descending(self) -> list[nn.Parameter]:
        return [*self.q_net.parameters(), self.end_q, self.multiplier]

    def ascending(self) -> list[nn.Parameter]:
        return [*self.zeta_net.parameters(), self.end_zeta]


class DiceLearner:
    """What the loop trains.

    Args:
        data: encoded transitions and start states.
        rule: switches and rates.
        generator: draws weights and batches.
    """

    def __init__(self, data: DiceData, rule: DiceRule, generator: torch.Generator) -> None:
        self.data, self.rule, self.generator, self.batch_size = data, rule, generator, rule.batch_size
        device = data.z.device
        self.critics = Critics((data.z.shape[1], data.actions.shape[1]), rule, generator).to(device)
        self.averaged = deepcopy(self.critics)
        groups = [
            {"params": self.critics.descending(), "lr": rule.lr_q},
            {"params": self.critics.ascending(), "lr": rule.lr_zeta, "maximize": True},
        ]
        self.optimiser = torch.optim.Adam(groups, betas=(rule.momentum, 0.99), eps=1e-8)
        # Weight of absorbing rows beside the logged ones: as many as the log would hold had it gone on recording.
        share = float(data.terminated.double().mean())
        self.end_weight = min(1.0, share / (1.0 - rule.discount))
        self.done = 0

    def step(self) -> Mapping[str, float | Tensor]:
        rates = (self.rule.lr_q, self.rule.lr_zeta)
        fade = 0.5 * (1.0 + math.cos(math.pi * self.done / self.rule.steps)) if self.rule.cosine else 1.0
        for group, rate in zip(self.optimiser.param_groups, rates, strict=True):
            group["lr"] = rate * fade
        index = self._draw(len(self.data.rows), self.batch_size)
        zeta, lagrangian = self._lagrangian(index, self._draw(len(self.data.start_z), self.batch_size))
        self.optimiser.zero_grad()
        clip = self.rule.clip_value
        (lagrangian if clip is None else lagrangian * self.batch_size).backward()  # type: ignore[no-untyped-call]
        if clip is None:
            nn.utils.clip_grad_norm_(self.critics.descending(), 10.0)
            nn.utils.clip_grad_norm_(self.critics.ascending(), 10.0)
        else:
            nn.utils.clip_grad_value_(self.critics.parameters(), clip)
        self.optimiser.step()
        self.done += 1
        self._average()
        earned = (zeta * self.data.rewards[index]).mean()
        return {"lagrangian": lagrangian, "mean_zeta": zeta.mean(), "weighted_reward": earned}

    def _draw(self, count: int, size: int) -> Tensor:
        return torch.randint(count, (size,), generator=self.generator).to(self.data.z.device)

    def _lagrangian(self, index: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """zeta of the batch (no gradient) and the Lagrangian."""
        data, rule, critics = self.data, self.rule, self.critics
        rows, actions, ended = data.rows[index], data.actions[index], data.terminated[index]
        following, first = rows + 1, start
        z = data.z[rows]
        q, q_next, q_start = self._q(
            (z, actions),
            self._choose(data.z[following], data.chosen[following], data.weights[following]),
            self._choose(data.start_z[first], data.start_chosen[first], data.start_weights[first]),
        )
        q_next = torch.where(ended, critics.q_at_end(), q_next)
        zeta, zeta_end = critics.zeta(z, actions), critics.zeta_at_end()
        multiplier = critics.multiplier if rule.normalised else torch.zeros_like(critics.multiplier)
        residual = rule.alpha_r * data.rewards[index] + rule.discount * q_next - q - multiplier
        residual_end = (rule.discount - 1.0) * critics.q_at_end() - multiplier
        value = (1.0 - rule.discount) * q_start.mean() + multiplier.sum()
        value = value + (zeta * residual).mean() + self.end_weight * (zeta_end * residual_end).sum()
        if rule.alpha_q:
            value = value + rule.alpha_q * self._power(q, critics.q_at_end())
        if rule.alpha_zeta:
            value = value - rule.alpha_zeta * self._power(zeta, zeta_end)
        return zeta.detach(), value

    def _power(self, x: Tensor, at_end: Tensor) -> Tensor:
        p = self.rule.power
        return (x.abs().pow(p).mean() + self.end_weight * at_end.abs().pow(p).sum()) / p

    def _choose(self, z: Tensor, chosen: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """States, actions and weights to average Q over: all k actions, or one drawn afresh (and shaken)."""
        n, k, width = chosen.shape
        if self.data.exact:
            return z.repeat_interleave(k, dim=0), chosen.reshape(n * k, width), weights
        pick = torch.randint(k, (n,), generator=self.generator).to(z.device)
        action = chosen[torch.arange(n, device=z.device), pick]
        if self.data.noise > 0.0:
            shake = torch.randn(action.shape, generator=self.generator).to(z.device)
            action = action + self.data.noise * shake
        return z, action, weights.new_ones(n, 1)

    def _q(self, logged: tuple[Tensor, Tensor], *groups: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, ...]:
        """Q(s, a) and the averages over the other groups' actions, by one pass of the network."""
        states = torch.cat([logged[0], *[z for z, _, _ in groups]])
        actions = torch.cat([logged[1], *[action for _, action, _ in groups]])
        sizes = [len(logged[0]), *[len(z) for z, _, _ in groups]]
        parts = torch.split(self.critics.q(states, actions), sizes)
        averages = [
            (part.view(weights.shape) * weights).sum(dim=1)
            for part, (_, _, weights) in zip(parts[1:], groups, strict=True)
        ]
        return parts[0], *averages

    def _average(self) -> None:
        """The averaged weights follow; early steps are forgotten quickly."""
        keep = min(self.rule.average, self.done / (self.done + 9.0))
        with torch.no_grad():
            old, new = ([p.data for p in critics.parameters()] for critics in (self.averaged, self.critics))
            torch._foreach_lerp_(old, new, 1.0 - keep)

    def state(self) -> dict[str, Any]:
        return {
            "critics": self.critics.state_dict(),
            "averaged": self.averaged.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "generator": self.generator.get_state(),
            "done": self.done,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.critics.load_state_dict(state["critics"])
        self.averaged.load_state_dict(state["averaged"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.generator.set_state(state["generator"])
        self.done = state["done"]
