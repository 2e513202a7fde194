"""What a learner remembers: its own steps, and demonstrations beside them."""

from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bcrl_bench.policies.mirror import Mirror


class Buffer:
    """Ring of n-step transitions (s, a, sum g^i r, s_n, g^n or 0)."""

    def __init__(
        self,
        size: int,
        state_dim: int,
        action_dim: int,
        n_step: int,
        discount: float,
        mirror: Mirror | None = None,
    ) -> None:
        self.states, self.nexts = torch.zeros(size, state_dim), torch.zeros(size, state_dim)
        self.actions, self.rewards, self.discounts = (
            torch.zeros(size, action_dim),
            torch.zeros(size),
            torch.zeros(size),
        )
        self.size, self.count, self.n_step, self.discount = size, 0, n_step, discount
        self.mirror = mirror
        self.pending: deque[tuple[np.ndarray, np.ndarray, float]] = deque()

    def add(
        self,
        state: np.ndarray,
        action: np.ndarray,
        reward: float,
        after: np.ndarray,
        terminated: bool,
        last: bool,
    ) -> None:
        """Add one step; windows are cut short at an episode's end and bootstrapped unless the world ended."""
        self.pending.append((state, action, reward))
        while self.pending and (last or len(self.pending) == self.n_step):
            total = sum(self.discount**i * step[2] for i, step in enumerate(self.pending))
            row, length = self.count % self.size, len(self.pending)
            first = self.pending.popleft()
            self.states[row], self.actions[row] = torch.from_numpy(first[0]), torch.from_numpy(first[1])
            self.nexts[row], self.rewards[row] = torch.from_numpy(after), total
            self.discounts[row] = 0.0 if terminated else self.discount**length
            self.count += 1
            if not last:
                break

    def sample(self, batch: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Rows drawn uniformly with replacement, half of them as the mirror shows them where there is one."""
        rows = torch.randint(min(self.count, self.size), (batch,), generator=generator)
        states, actions, nexts = self.states[rows], self.actions[rows], self.nexts[rows]
        if self.mirror is not None:
            half = slice(batch // 2)
            states[half], nexts[half] = self.mirror.states(states[half]), self.mirror.states(nexts[half])
            actions[half] = self.mirror.actions(actions[half])
        return states, actions, self.rewards[rows], nexts, self.discounts[rows]


@dataclass(frozen=True)
class Beside:
    """Half of every batch from demonstrations, half from what the learner did itself (Ball et al. 2023)."""

    own: Buffer
    shown: Buffer

    def sample(self, batch: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Rows of both, drawn uniformly with replacement."""
        half = batch // 2
        pairs = zip(self.own.sample(batch - half, generator), self.shown.sample(half, generator), strict=True)
        return tuple(torch.cat(pair) for pair in pairs)
