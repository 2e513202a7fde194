"""What a step of fitted Q-evaluation reads: transitions as tensors, rewards in the network's own unit."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bcrl.data.dataset import Dataset
from bcrl.estimators.fqe.network import Network, States
from bcrl.policies.policy import TargetActions


@dataclass(frozen=True, eq=False)
class Batch:
    """n transitions.

    Attributes:
        states, next_states: s and s'.
        actions: the logged ones, one-hot where discrete, shape (n, action_dim).
        next_actions: the policy's at s', its probabilities where discrete, shape (n, action_dim).
        rewards: in the network's unit, shape (n,).
        discounts: the discount, or 0 where the world ended, shape (n,).
        unit: the independent unit that each belongs to, shape (n,).
    """

    states: States
    next_states: States
    actions: Tensor
    next_actions: Tensor
    rewards: Tensor
    discounts: Tensor
    unit: Tensor


class Transitions:
    """A dataset and one policy's actions on it, on a device, gathered by transition.

    Where the encoder has nothing to learn everything lies in one table, and a batch is one gather. Discrete
    actions enter as one-hot rows and the policy's as its probabilities, so that its expectation costs one
    product. Of several drawn actions a step takes one at random: the regression averages them.
    """

    def __init__(
        self, dataset: Dataset, target: TargetActions, network: Network, device: torch.device
    ) -> None:
        self.dataset, self.encoder, self.device = dataset, network.encoder, device
        scale = network.scale
        rewards = torch.from_numpy((dataset.rewards - scale.mean) / scale.deviation).float()
        discounts = torch.from_numpy(scale.discount * ~dataset.terminated).float()
        self.unit = torch.from_numpy(dataset.units[dataset.episode_of]).to(device)
        rows = torch.from_numpy(dataset.rows)
        # A copy: arrays of a memory-mapped folder are read-only, which torch warns about.
        actions = torch.tensor(dataset.action_matrix(dataset.actions))
        self.policy_actions = _policy_actions(dataset, target).to(device)
        z = self.encoder.table(dataset)
        columns = [actions, rewards[:, None], discounts[:, None]]
        if z is not None:
            columns += [z[rows].cpu(), z[rows + 1].cpu()]
        if self.policy_actions.shape[1] == 1:
            columns.append(self.policy_actions[rows + 1, 0].cpu())
        self.widths = [column.shape[1] for column in columns]
        self.table = torch.cat(columns, dim=1).to(device)
        self.rows = rows.to(device)

    def __len__(self) -> int:
        return len(self.table)

    def gather(self, index: Tensor, generator: torch.Generator) -> Batch:
        """The batch of these transitions; the generator chooses among drawn actions."""
        taken = self.table.index_select(0, index)
        actions, rewards, discounts, *rest = torch.split(taken, self.widths, dim=1)
        states, next_states = self._observe(index) if self.encoder.has_pixels else (rest[0], rest[1])
        draws = self.policy_actions.shape[1]
        if draws == 1:
            next_actions = rest[-1]
        else:
            draw = torch.randint(draws, index.shape, generator=generator).to(self.device)
            next_actions = self.policy_actions[self.rows[index] + 1, draw]
        return Batch(
            states=states,
            next_states=next_states,
            actions=actions,
            next_actions=next_actions,
            rewards=rewards[:, 0],
            discounts=discounts[:, 0],
            unit=self.unit[index],
        )

    def _observe(self, index: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        rows = self.dataset.rows[index.cpu().numpy()]
        now, after = (self.encoder.read(self.dataset.observe(rows + step), self.device) for step in (0, 1))
        return now, after


def _policy_actions(dataset: Dataset, target: TargetActions) -> Tensor:
    """Actions as the critic reads them, (rows, k, action_dim): probabilities with k = 1 when discrete."""
    if dataset.discrete:
        return torch.from_numpy(target.mean.astype(np.float32))[:, None]
    return torch.from_numpy(np.ascontiguousarray(target.actions))
