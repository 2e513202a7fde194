"""What a step of fitted Q-evaluation reads: transitions as tensors, rewards and values in the network's own unit.

With G_h = 1 + discount + ... + discount^(h-1), the sum of discounts over the h steps that are left, the network f predicts

    Q_h(s, a) = G_h (mean + deviation f(s, a, h))        "per_step": policy_eval's (1 - discount) Q
    Q(s, a)   = mean G + deviation f(s, a)               "value": d3rlpy's

where mean and deviation are those of the reward (0 and 1 when it is not standardised, mean 0 when the world can end).
Without a horizon h is not an input and G = 1 / (1 - discount). With one, Q_0 = 0 comes from G_0 = 0 alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bcrl.data.dataset import Dataset
from bcrl.networks import Encoder, Standardise
from bcrl.policies.policy import TargetActions

Output = Literal["per_step", "value"]


@dataclass(frozen=True)
class Scale:
    """The network's unit.

    Attributes:
        mean, deviation: of the reward.
        low, high: smallest and largest reward.
        ends: the world can end.
        discount: of the value.
        horizon: number of steps; None for the whole future.
        output: what the network predicts.
    """

    mean: float
    deviation: float
    low: float
    high: float
    ends: bool
    discount: float
    horizon: int | None
    output: Output

    @classmethod
    def of(
        cls, dataset: Dataset, discount: float, horizon: int | None, output: Output, standardise: bool
    ) -> "Scale":
        rewards, ends = dataset.rewards, bool(dataset.terminated.any())
        spread = float(rewards.std())
        return cls(
            mean=0.0 if ends or not standardise else float(rewards.mean()),
            # A reward that never changes has no spread; its own size is then the unit.
            deviation=1.0
            if not standardise
            else spread
            if spread > 1e-8
            else max(float(np.abs(rewards).max()), 1e-8),
            low=float(rewards.min()),
            high=float(rewards.max()),
            ends=ends,
            discount=discount,
            horizon=horizon,
            output="per_step" if horizon is not None else output,
        )

    def steps(self, left: Tensor | float) -> Tensor | float:
        """G_h: discounted number of steps in `left` steps."""
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
        return (
            self.mean * self.longest
            + self.deviation * float(self.unit(float(self.horizon or 0))) * outputs.double()
        )

    def bounds(self, left: Tensor | float) -> tuple[Tensor | float, Tensor | float]:
        """Smallest and largest output that a return of these rewards can have; a world that ends may do so at once."""
        steps, unit = self.steps(left), self.unit(left)
        low, high = ((end - self.mean) / self.deviation for end in (self.low, self.high))
        ends = [low * steps / unit, high * steps / unit]
        if self.ends:
            return min(0.0, low) * steps / unit, max(0.0, high) * steps / unit
        return ends[0], ends[1]


@dataclass(frozen=True, eq=False)
class Batch:
    """n transitions: z of s and s' (or what they are encoded from), actions, rewards, gamma or 0, unit of each."""

    here: Tensor | Mapping[str, Tensor]
    there: Tensor | Mapping[str, Tensor]
    actions: Tensor
    next_actions: Tensor
    rewards: Tensor
    discounts: Tensor
    unit: Tensor


class Transitions:
    """A dataset and one policy's actions on it, on a device, gathered by transition.

    Where the encoder has nothing to learn everything lies in one table, and a batch is one gather. Discrete actions
    enter as one-hot rows and the policy's as its probabilities, so that its expectation costs one product. Of several drawn
    actions a step takes one at random: the regression averages them.
    """

    def __init__(
        self,
        dataset: Dataset,
        target: TargetActions,
        encoder: Encoder,
        scale: Scale,
        device: torch.device,
    ) -> None:
        self.dataset, self.encoder, self.device = dataset, encoder, device
        self.action_dim = dataset.action_dim
        rewards = torch.from_numpy((dataset.rewards - scale.mean) / scale.deviation).float()
        discounts = torch.from_numpy(scale.discount * ~dataset.terminated).float()
        self.unit = torch.from_numpy(dataset.units[dataset.episode_of]).to(device)
        self.rows = torch.from_numpy(dataset.rows)
        # A copy: arrays of a memory-mapped folder are read-only, which torch warns about.
        actions = torch.tensor(dataset.action_matrix(dataset.actions))
        self.drawn = _expected(dataset, target).to(device)
        self.z = encoder.table(dataset)
        columns = [actions, rewards[:, None], discounts[:, None]]
        if self.z is not None:
            columns += [self.z[self.rows].cpu(), self.z[self.rows + 1].cpu()]
        if self.drawn.shape[1] == 1:
            columns.append(self.drawn[self.rows + 1, 0].cpu())
        self.widths = [column.shape[1] for column in columns]
        self.table = torch.cat(columns, dim=1).to(device)
        self.rows = self.rows.to(device)

    def __len__(self) -> int:
        return len(self.table)

    def gather(self, index: Tensor, generator: torch.Generator) -> Batch:
        """The batch of these transitions; the generator chooses among drawn actions."""
        taken = self.table.index_select(0, index)
        actions, rewards, discounts, *rest = torch.split(taken, self.widths, dim=1)
        here, there = (rest[0], rest[1]) if self.z is not None else self._observe(index)
        if self.drawn.shape[1] == 1:
            following = rest[-1]
        else:
            which = torch.randint(self.drawn.shape[1], index.shape, generator=generator).to(self.device)
            following = self.drawn[self.rows[index] + 1, which]
        return Batch(here, there, actions, following, rewards[:, 0], discounts[:, 0], self.unit[index])

    def _observe(self, index: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        rows = self.dataset.rows[index.cpu().numpy()]
        here, there = (self.encoder.read(self.dataset.observe(rows + step), self.device) for step in (0, 1))
        return here, there


def _expected(dataset: Dataset, target: TargetActions) -> Tensor:
    """Actions as the critic reads them, (rows, k, action_dim): probabilities with k = 1 when discrete."""
    if dataset.discrete:
        mean = np.einsum("nk,nka->na", target.weights, target.actions, dtype=np.float64, casting="same_kind")
        return torch.from_numpy(mean.astype(np.float32))[:, None]
    return torch.from_numpy(np.ascontiguousarray(target.actions))


def leave_raw(encoder: Encoder) -> Encoder:
    """The same encoder with vectors passed on as they are."""
    for part in encoder.parts:
        if isinstance(part, Standardise):
            part.mean.zero_()
            part.deviation.fill_(1.0)
    return encoder


def unit_weights(members: int, units: int, generator: np.random.Generator) -> NDArray[np.float32]:
    """Bayesian bootstrap: exponential weights of mean 1 over the independent units, one row per member.

    No unit is ever left out, so no member loses a part of the state space (Rubin, 1981).
    """
    drawn = generator.exponential(size=(members, units))
    return np.asarray(drawn / drawn.mean(axis=1, keepdims=True), dtype=np.float32)
