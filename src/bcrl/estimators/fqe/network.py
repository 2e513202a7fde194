"""Q as a network: an encoder, critics on top of it, and the unit of what they predict.

With G_h = 1 + discount + ... + discount^(h-1), the sum of discounts over the h steps that are left,
the network f predicts

    Q_h(s, a) = G_h (mean + deviation f(s, a, h))        standardised, as policy_eval's (1 - discount) Q
    Q(s, a)   = mean G + deviation f(s, a)               as logged, with mean 0 and deviation 1: d3rlpy's

where mean and deviation are those of the reward (mean 0 when the world can end). Without a horizon h is not
an input and G = 1 / (1 - discount). With one, Q_0 = 0 comes from G_0 = 0 alone, and f always predicts as in
the first line.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from bcrl.estimate import FloatArray
from bcrl.estimators.fqe.critics import Critics
from bcrl.networks import Encoder
from bcrl.question import Question

# z of states where nothing in the encoder learns, else the observations by key that it reads.
States = Tensor | Mapping[str, Tensor]


@dataclass(frozen=True)
class Scale:
    """The network's unit.

    Attributes:
        mean, deviation: of the reward.
        low, high: smallest and largest reward.
        ends: the world can end.
        discount: of the value.
        horizon: number of steps; None for the whole future.
        output: what the network predicts, a value "per_step" that is left or the "value" itself.
    """

    mean: float
    deviation: float
    low: float
    high: float
    ends: bool
    discount: float
    horizon: int | None
    output: Literal["per_step", "value"]

    @classmethod
    def of(cls, question: Question, *, standardise: bool) -> "Scale":
        """The unit for this question's rewards."""
        rewards, ends = question.dataset.rewards, bool(question.dataset.terminated.any())
        return cls(
            mean=0.0 if ends or not standardise else float(rewards.mean()),
            deviation=_size(rewards) if standardise else 1.0,
            low=float(rewards.min()),
            high=float(rewards.max()),
            ends=ends,
            discount=question.discount,
            horizon=question.horizon,
            output="per_step" if standardise or question.horizon is not None else "value",
        )

    def steps(self, left: Tensor | float) -> Tensor | float:
        """G_h: the discounted number of steps in `left` steps."""
        if self.horizon is None:
            return 1.0 / (1.0 - self.discount)
        return left if self.discount == 1.0 else (1.0 - self.discount**left) / (1.0 - self.discount)

    def unit(self, left: Tensor | float) -> Tensor | float:
        """What the network's output is multiplied with, in units of the reward's deviation."""
        return self.steps(left) if self.output == "per_step" else 1.0

    @property
    def longest(self) -> float:
        """G of the whole question."""
        return float(self.steps(float(self.horizon or 0)))

    @property
    def limit(self) -> float:
        """The largest value, in size, that any policy could have with these rewards."""
        return max(abs(self.low), abs(self.high)) * self.longest

    def value(self, outputs: Tensor) -> Tensor:
        """Network outputs as values of the whole question, in the reward's own unit and float64."""
        unit = self.deviation * float(self.unit(float(self.horizon or 0)))
        return self.mean * self.longest + unit * outputs.double()

    def bounds(self, left: Tensor | float) -> tuple[Tensor | float, Tensor | float]:
        """Smallest and largest output that these rewards allow; a world that can end may end at once."""
        steps, unit = self.steps(left), self.unit(left)
        low, high = ((end - self.mean) / self.deviation for end in (self.low, self.high))
        if self.ends:
            low, high = min(0.0, low), max(0.0, high)
        return low * steps / unit, high * steps / unit


class Network:
    """Encoder and critics: states and actions to Q in the network's own unit, by each member."""

    def __init__(self, encoder: Encoder, critics: Critics, scale: Scale, discrete: bool) -> None:
        self.encoder, self.critics, self.scale, self.discrete = encoder, critics, scale, discrete

    def copy(self) -> "Network":
        critics = self.critics.zeros_like()
        critics.flat.copy_(self.critics.flat)
        encoder = deepcopy(self.encoder) if self.encoder.has_pixels else self.encoder
        return Network(encoder, critics, self.scale, self.discrete)

    def encode(self, states: States) -> Tensor:
        return states if isinstance(states, Tensor) else self.encoder(states)

    def inputs(self, z: Tensor, actions: Tensor, left: Tensor | None) -> Tensor:
        """What the critics read: z, the action (unless it selects an output), the number of steps left."""
        parts = [z] if self.discrete else [z, actions]
        if left is not None:
            share = torch.as_tensor(self.scale.steps(left)) / self.scale.longest
            parts.append((2.0 * share - 1.0)[:, None])
        return torch.cat(parts, dim=1) if len(parts) > 1 else z

    def select(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Outputs (members, n, ...) at the actions, or averaged over probabilities: (members, n)."""
        return (outputs * actions).sum(dim=2) if self.discrete else outputs[..., 0]

    def q(self, states: States, actions: Tensor, left: Tensor | None = None) -> Tensor:
        """Q in the network's unit, shape (members, n)."""
        return self.select(self.critics(self.inputs(self.encode(states), actions, left)), actions)


def _size(rewards: FloatArray) -> float:
    """The rewards' deviation; for a reward that never changes, its absolute value."""
    deviation = float(rewards.std())
    return deviation if deviation > 1e-8 else max(float(np.abs(rewards).max()), 1e-8)
