"""One step of fitted Q-evaluation for all members at once, as the training loop wants it.

    y = r + discount (1 - terminated) Qbar(s', pi),      loss = mean_i w_i (Q(s_i, a_i) - y_i)^2

Qbar is the target network. `anchor` removes the slowest part of the iteration: a constant error c of Q fades by only
(1 - discount) per renewal of the target network, yet the mean TD error over the data is -c (1 - discount) and tells what c is.
At every check c is solved for and added to the output's bias, which leaves the fixed point where it was.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bcrl.estimators.fqe.critics import Critics
from bcrl.estimators.fqe.data import Batch, Scale, Transitions
from bcrl.networks import Encoder, random_shift

Encoded = Tensor | Mapping[str, Tensor]
_CHUNK = 1024


@dataclass(frozen=True)
class StepRule:
    """Everything that a step depends on besides data and weights; the fields are those of `FQE`."""

    lr: float
    weight_decay: float
    adam_eps: float
    batch_size: int
    target: Literal["soft", "hard"]
    tau: float
    period: int
    loss: Literal["squared", "huber"]
    clip: bool
    shift: int
    anchor: bool
    readout: Literal["target", "online"]


class Network:
    """Encoder and critics: inputs to Q in the network's own unit."""

    def __init__(self, encoder: Encoder, critics: Critics, scale: Scale, discrete: bool) -> None:
        self.encoder, self.critics, self.scale, self.discrete = encoder, critics, scale, discrete

    def copy(self) -> "Network":
        critics = self.critics.like()
        critics.flat.copy_(self.critics.flat)
        encoder = deepcopy(self.encoder) if self.encoder.has_pixels else self.encoder
        return Network(encoder, critics, self.scale, self.discrete)

    def encode(self, seen: Encoded) -> Tensor:
        return seen if isinstance(seen, Tensor) else self.encoder(seen)

    def inputs(self, z: Tensor, actions: Tensor, left: Tensor | None) -> Tensor:
        """What the critics read: z, the action unless it selects an output, and the steps left where there is a horizon."""
        parts = [z] if self.discrete else [z, actions]
        if left is not None:
            share = torch.as_tensor(self.scale.steps(left)) / self.scale.longest
            parts.append((2.0 * share - 1.0)[:, None])
        return torch.cat(parts, dim=1) if len(parts) > 1 else z

    def select(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Outputs (members, n, ...) at the actions, or averaged over the policy's probabilities: (members, n)."""
        return (outputs * actions).sum(dim=2) if self.discrete else outputs[..., 0]

    def q(self, seen: Encoded, actions: Tensor, left: Tensor | None = None) -> Tensor:
        """Q in the network's unit, shape (members, n)."""
        return self.select(self.critics(self.inputs(self.encode(seen), actions, left)), actions)


class FQELearner:
    """What the loop trains: networks, target networks, optimiser and generator.

    Args:
        data: transitions.
        network: freshly initialised.
        rule: hyper-parameters.
        weights: bootstrap weight of each unit for each member, (members, units); None gives all the same.
        generator: draws batches.
    """

    def __init__(
        self,
        data: Transitions,
        network: Network,
        rule: StepRule,
        weights: Tensor | None,
        generator: torch.Generator,
    ) -> None:
        self.data, self.online, self.rule, self.weights, self.generator = (
            data,
            network,
            rule,
            weights,
            generator,
        )
        self.target = network.copy()
        self.gradient = network.critics.like()
        self.flat = nn.Parameter(network.critics.flat)
        self.flat.grad = self.gradient.flat
        self.learned = list(network.encoder.parameters()) if network.encoder.has_pixels else []
        self.optimiser = torch.optim.AdamW(
            [self.flat, *self.learned],
            lr=rule.lr,
            eps=rule.adam_eps,
            weight_decay=rule.weight_decay,
            fused=True,
        )
        self.batch_size, self.steps, self.checks = rule.batch_size, 0, 0

    @property
    def readout(self) -> Network:
        """The network that answers."""
        return self.target if self.rule.readout == "target" else self.online

    def step(self) -> dict[str, Tensor]:
        index = torch.randint(len(self.data), (self.batch_size,), generator=self.generator)
        batch = self.data.gather(index.to(self.data.device), self.generator)
        left = self._draw_left(len(index))
        here, there = self._augmented(batch.here), self._augmented(batch.there)
        goal, clipped = self._goal(batch, there, left)
        z = self.online.encode(here)
        critics = self.online.critics
        with torch.no_grad():
            outputs, read = critics.forward(self.online.inputs(z, batch.actions, left))
            error = self.online.select(outputs, batch.actions) - goal
            loss, slope = self._loss(error, batch.unit)
            slopes = slope[..., None] * batch.actions if self.online.discrete else slope[..., None]
            back = critics.backward(read, slopes, self.gradient, inputs=bool(self.learned))
        if back is not None:
            for parameter in self.learned:
                parameter.grad = None
            torch.autograd.backward(z, back[:, : z.shape[1]])
        self.optimiser.step()
        self._renew()
        return {"loss": loss, "clipped": clipped} if self.rule.clip else {"loss": loss}

    def _draw_left(self, count: int) -> Tensor | None:
        """Steps left, uniform from 1 to the horizon: in a world that does not change every transition serves all."""
        horizon = self.online.scale.horizon
        if horizon is None:
            return None
        return torch.randint(1, horizon + 1, (count,), generator=self.generator).to(self.data.device).float()

    def _augmented(self, seen: Encoded) -> Encoded:
        if isinstance(seen, Tensor) or not self.rule.shift:
            return seen
        return {
            key: random_shift(value, self.rule.shift, self.generator) if value.dtype == torch.uint8 else value
            for key, value in seen.items()
        }

    @torch.no_grad()
    def _goal(self, batch: Batch, there: Encoded, left: Tensor | None) -> tuple[Tensor, Tensor]:
        """y in the network's unit, shape (members, n), and the share of it that was clipped."""
        scale = self.online.scale
        after = None if left is None else left - 1.0
        ahead = self.target.q(there, batch.next_actions, after)
        if left is None:
            goal = torch.addcmul(batch.rewards / scale.unit(0.0), ahead, batch.discounts)
        else:
            goal = (batch.rewards + batch.discounts * scale.unit(after) * ahead) / scale.unit(left)  # type: ignore[arg-type]
        if not self.rule.clip:
            return goal, goal.new_zeros(())
        low, high = (
            torch.as_tensor(end, device=goal.device) for end in scale.bounds(0.0 if left is None else left)
        )
        outside = ((goal < low) | (goal > high)).float().mean()
        return goal.clamp(low, high), outside

    def _loss(self, error: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
        """Mean loss over members and batch, and its slope by error, (members, n), for each member on its own."""
        if self.rule.loss == "huber":
            slope = error.clamp(-1.0, 1.0) / self.batch_size
            loss = torch.where(error.abs() < 1.0, 0.5 * error.square(), error.abs() - 0.5)
        else:
            slope, loss = error * (2.0 / self.batch_size), error.square()
        if self.weights is None:
            return loss.mean(), slope
        weight = self.weights[:, unit]
        return (weight * loss).mean(), weight * slope

    @torch.no_grad()
    def _renew(self) -> None:
        """Move the target network: a little each step, or all the way every `period` steps, the first step among them."""
        if self.rule.target == "soft":
            self._follow(self.rule.tau)
        elif self.steps % self.rule.period == 0:
            self._follow(1.0)
        self.steps += 1

    def _follow(self, tau: float) -> None:
        self.target.critics.flat.lerp_(self.online.critics.flat, tau)
        if self.learned:
            for mine, other in zip(self.target.encoder.parameters(), self.learned, strict=True):
                mine.lerp_(other, tau)

    @torch.no_grad()
    def settle(self, sample: int) -> float:
        """Solve for each member's constant error on fresh transitions and, where `anchor` asks so, add it to the outputs.

        What is added shrinks like 1 / checks unless the sample is all data, so that its noise averages out.

        Args:
            sample: transitions to look at.

        Returns:
            The mean constant error over members, in the reward's unit.
        """
        whole = sample >= len(self.data)
        index = (
            torch.arange(len(self.data))
            if whole
            else torch.randint(len(self.data), (sample,), generator=self.generator)
        )
        self.checks += 1
        constant = torch.stack([self._residual(part) for part in torch.split(index, _CHUNK)]).sum(dim=0)
        constant = constant[0] / constant[1]
        if self.rule.anchor:
            gain = 1.0 if whole else min(1.0, 4.0 / self.checks)
            for network in (self.online, self.target):
                network.critics.layers[-1][1].add_(gain * constant[:, None, None])
        scale = self.online.scale
        return float(constant.mean()) * scale.deviation * float(scale.unit(0.0))

    def _residual(self, index: Tensor) -> Tensor:
        """Sums over transitions of the TD error and of 1 - discount, for each member, shape (2, members)."""
        batch = self.data.gather(index.to(self.data.device), self.generator)
        ahead = self.readout.q(batch.there, batch.next_actions)
        now = self.readout.q(batch.here, batch.actions)
        residual = batch.rewards / self.online.scale.unit(0.0) + batch.discounts * ahead - now
        weight = torch.ones_like(now) if self.weights is None else self.weights[:, batch.unit]
        return torch.stack([(weight * residual).sum(dim=1), (weight * (1.0 - batch.discounts)).sum(dim=1)])

    def state(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "checks": self.checks,
            "online": self.online.critics.flat,
            "target": self.target.critics.flat,
            "encoder": self.online.encoder.state_dict(),
            "target_encoder": self.target.encoder.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "generator": self.generator.get_state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.steps, self.checks = state["steps"], state["checks"]
        with torch.no_grad():
            self.online.critics.flat.copy_(state["online"])
            self.target.critics.flat.copy_(state["target"])
        self.online.encoder.load_state_dict(state["encoder"])
        self.target.encoder.load_state_dict(state["target_encoder"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.generator.set_state(state["generator"])
