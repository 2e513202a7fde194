"""One step of fitted Q-evaluation for all members at once, as the training loop wants it.

    y = r + discount (1 - terminated) Qbar(s', pi),      loss = mean_i w_i (Q(s_i, a_i) - y_i)^2

Qbar is the target network. `anchor` removes the slowest part of the iteration: a constant error c of Q fades
by only (1 - discount) per renewal of the target network, but the mean TD error over the data,
-c (1 - discount), shows what c is. At every check c is solved for and added to the output's bias, which
leaves the fixed point where it was.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bcrl.estimate import short_call
from bcrl.estimators.fqe.critics import Critics
from bcrl.estimators.fqe.network import Network, Scale, States
from bcrl.estimators.fqe.transitions import Batch, Transitions
from bcrl.networks import Encoder, Standardise, encoder_for, follow, random_shift
from bcrl.options import Checked, Count, Rate
from bcrl.question import Question, Target
from bcrl.training import generators

if TYPE_CHECKING:
    from bcrl.estimators.fqe.method import FQE

_CHUNK = 1024


@dataclass(frozen=True)
class TargetNetwork(Checked):
    """Qbar, the slow copy of Q that regression targets are made with.

    Attributes:
        tau: the share of the way to Q that it goes in one move; 1 copies Q.
        every: steps between two moves; there is a move after the first step too.
        answers: read the value from it; False reads it from Q.
    """

    tau: Rate = 0.005
    every: Count = 1
    answers: bool = True

    __repr__ = short_call


class FQELearner:
    """What the loop trains: networks, target networks, optimiser and generator.

    Args:
        recipe: how; its `batch_size` is a number.
        data: transitions.
        network: freshly initialised.
        unit_weights: bootstrap weight of each unit for each member, (members, units); None: all the same.
        generator: draws batches.
    """

    def __init__(
        self,
        recipe: "FQE",
        data: Transitions,
        network: Network,
        unit_weights: Tensor | None,
        generator: torch.Generator,
    ) -> None:
        assert recipe.batch_size is not None
        self.recipe, self.data, self.generator = recipe, data, generator
        self.batch_size, self.unit_weights = recipe.batch_size, unit_weights
        self.online, self.target = network, network.copy()
        self.gradient = network.critics.zeros_like()
        critics = nn.Parameter(network.critics.flat)
        critics.grad = self.gradient.flat
        # Vectors are only standardised: there is nothing to learn.
        self.encoder_weights = list(network.encoder.parameters())
        self.optimiser = torch.optim.AdamW(
            [critics, *self.encoder_weights],
            lr=recipe.lr,
            eps=recipe.adam_eps,
            weight_decay=recipe.weight_decay,
            fused=True,
        )
        self.steps, self.checks = 0, 0

    @classmethod
    def of(cls, recipe: "FQE", question: Question, target: Target, device: torch.device) -> "FQELearner":
        """Fresh networks, and the data of one policy."""
        dataset = question.dataset
        weight_generator, generator = generators(question.seed)
        encoder = encoder_for(dataset, reads=recipe.reads, pixels=recipe.pixels, generator=generator)
        if not recipe.standardise:
            _pass_vectors_on(encoder)
        scale = Scale.of(question, standardise=recipe.standardise)
        inputs = encoder.z_dim + (0 if dataset.discrete else dataset.action_dim) + (scale.horizon is not None)
        widths = (inputs, *recipe.hidden, dataset.action_dim if dataset.discrete else 1)
        critics = Critics(recipe.members, widths, device).initialise(recipe.init, generator)
        network = Network(encoder.to(device), critics, scale, dataset.discrete)
        unit_weights = None
        if recipe.members > 1:
            drawn = draw_unit_weights(recipe.members, question.num_units, weight_generator)
            unit_weights = torch.from_numpy(drawn).to(device)
        data = Transitions(dataset, target.actions, network, device)
        return cls(recipe, data, network, unit_weights, generator)

    @property
    def readout(self) -> Network:
        """The network that answers."""
        return self.target if self.recipe.target_network.answers else self.online

    def step(self) -> dict[str, Tensor]:
        """Draw a batch, move Q towards y, and let the target network follow."""
        index = torch.randint(len(self.data), (self.batch_size,), generator=self.generator)
        batch = self.data.gather(index.to(self.data.device), self.generator)
        left = self._draw_steps_left()
        states, next_states = self._shift(batch.states), self._shift(batch.next_states)
        y, clipped = self._regression_targets(batch, next_states, left)
        loss = self._descend(batch, states, left, y)
        self._move_target_network()
        return {"loss": loss, "clipped": clipped} if self.recipe.clip else {"loss": loss}

    def _draw_steps_left(self) -> Tensor | None:
        """Uniform from 1 to the horizon: as the world does not change with time, a transition serves all."""
        horizon = self.online.scale.horizon
        if horizon is None:
            return None
        left = torch.randint(1, horizon + 1, (self.batch_size,), generator=self.generator)
        return left.to(self.data.device).float()

    def _shift(self, states: States) -> States:
        """Images moved at random, where the recipe asks for it."""
        shift = self.recipe.pixels.shift
        if isinstance(states, Tensor) or not shift:
            return states
        return {
            key: random_shift(value, shift, self.generator) if value.dtype == torch.uint8 else value
            for key, value in states.items()
        }

    @torch.no_grad()
    def _regression_targets(
        self, batch: Batch, next_states: States, left: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """y in the network's unit, shape (members, n), and the share of it that was clipped."""
        scale = self.online.scale
        if left is None:
            next_q = self.target.q(next_states, batch.next_actions)
            y = torch.addcmul(batch.rewards / scale.unit(0.0), next_q, batch.discounts)
        else:
            next_q = self.target.q(next_states, batch.next_actions, left - 1.0)
            y = (batch.rewards + batch.discounts * scale.unit(left - 1.0) * next_q) / scale.unit(left)
        if not self.recipe.clip:
            return y, y.new_zeros(())
        bounds = scale.bounds(0.0 if left is None else left)
        low, high = (torch.as_tensor(end, device=y.device) for end in bounds)
        return y.clamp(low, high), ((y < low) | (y > high)).float().mean()

    def _descend(self, batch: Batch, states: States, left: Tensor | None, y: Tensor) -> Tensor:
        """One step of Adam on critics and encoder; the loss before it."""
        network = self.online
        z = network.encode(states)
        with torch.no_grad():
            outputs, read = network.critics.forward(network.inputs(z, batch.actions, left))
            error = network.select(outputs, batch.actions) - y
            loss, slope = self._loss(error, batch.unit)
            slopes = slope[..., None] * batch.actions if network.discrete else slope[..., None]
            by_input = network.critics.backward(read, slopes, self.gradient, bool(self.encoder_weights))
        if by_input is not None:
            for parameter in self.encoder_weights:
                parameter.grad = None
            torch.autograd.backward(z, by_input[:, : z.shape[1]])
        self.optimiser.step()
        return loss

    def _loss(self, error: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
        """Mean loss over members and batch, and each member's slope by its errors, (members, n)."""
        if self.recipe.loss == "huber":
            slope = error.clamp(-1.0, 1.0) / self.batch_size
            loss = torch.where(error.abs() < 1.0, 0.5 * error.square(), error.abs() - 0.5)
        else:
            slope, loss = error * (2.0 / self.batch_size), error.square()
        if self.unit_weights is None:
            return loss.mean(), slope
        weight = self.unit_weights[:, unit]
        return (weight * loss).mean(), weight * slope

    @torch.no_grad()
    def _move_target_network(self) -> None:
        move = self.recipe.target_network
        if self.steps % move.every == 0:
            self.target.critics.flat.lerp_(self.online.critics.flat, move.tau)
            follow(self.target.encoder, self.online.encoder, move.tau)
        self.steps += 1

    @torch.no_grad()
    def solve_constant_error(self, sample: int) -> float:
        """Solve for each member's constant error on fresh transitions; with `anchor`, add it to the outputs.

        What is added shrinks like 1 / checks unless the sample is all data, so that its noise averages out.

        Args:
            sample: transitions to look at.

        Returns:
            The mean constant error over members, in the reward's unit.
        """
        count = len(self.data)
        all_data = sample >= count
        index = torch.arange(count) if all_data else torch.randint(count, (sample,), generator=self.generator)
        self.checks += 1
        sums = torch.stack([self._td_error_sums(part) for part in torch.split(index, _CHUNK)]).sum(dim=0)
        constant = sums[0] / sums[1]
        if self.recipe.anchor:
            gain = 1.0 if all_data else min(1.0, 4.0 / self.checks)
            for network in (self.online, self.target):
                network.critics.layers[-1][1].add_(gain * constant[:, None, None])
        scale = self.online.scale
        return float(constant.mean()) * scale.deviation * float(scale.unit(0.0))

    def _td_error_sums(self, index: Tensor) -> Tensor:
        """Sums over transitions of the TD error and of 1 - discount, for each member, shape (2, members)."""
        batch = self.data.gather(index.to(self.data.device), self.generator)
        next_q = self.readout.q(batch.next_states, batch.next_actions)
        q = self.readout.q(batch.states, batch.actions)
        td_error = batch.rewards / self.online.scale.unit(0.0) + batch.discounts * next_q - q
        weight = torch.ones_like(q) if self.unit_weights is None else self.unit_weights[:, batch.unit]
        return torch.stack([(weight * td_error).sum(dim=1), (weight * (1.0 - batch.discounts)).sum(dim=1)])

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


def draw_unit_weights(members: int, units: int, generator: np.random.Generator) -> NDArray[np.float32]:
    """Bayesian bootstrap: exponential weights of mean 1 over the independent units, one row per member.

    No unit is ever left out, so no member loses a part of the state space (Rubin, 1981).
    """
    drawn = generator.exponential(size=(members, units))
    return np.asarray(drawn / drawn.mean(axis=1, keepdims=True), dtype=np.float32)


def _pass_vectors_on(encoder: Encoder) -> None:
    """Make the encoder pass vectors on as they are."""
    for part in encoder.parts:
        if isinstance(part, Standardise):
            part.mean.zero_()
            part.deviation.fill_(1.0)
