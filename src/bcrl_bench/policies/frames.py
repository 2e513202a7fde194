"""Replay of pixel episodes: every frame stored once; stacks and n-step returns are made when a batch is
taken.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Stacked frames (n, H, W, C * stack) now and n steps on, actions, n-step rewards, and what the future is
    worth.
    """

    pixels: Tensor
    actions: Tensor
    rewards: Tensor
    nexts: Tensor
    discounts: Tensor


class FrameBuffer:
    """Ring of frames. Rows are numbered for ever; row `i` lies at `i % size`. An episode's last row has no
    action.
    """

    def __init__(
        self,
        size: int,
        image: tuple[int, int, int],
        actions: int,
        *,
        stack: int,
        n_step: int,
        discount: float,
    ) -> None:
        self.frames = np.zeros((size, *image), np.uint8)
        self.actions, self.rewards = np.zeros((size, actions), np.float32), np.zeros(size)
        self.first = np.zeros(size, np.int64)
        self.final, self.ended = np.zeros(size, bool), np.zeros(size, bool)
        self.size, self.count, self.start = size, 0, 0
        self.stack, self.n_step, self.discount = stack, n_step, discount

    def start_episode(self, frame: np.ndarray) -> None:
        """The first frame of an episode."""
        self.start = self.count
        self._put(frame)

    def add(
        self, action: np.ndarray, reward: float, frame: np.ndarray, *, terminated: bool, last: bool
    ) -> None:
        """An action, its reward and the frame after it."""
        row = (self.count - 1) % self.size
        self.actions[row], self.rewards[row] = action, reward
        self._put(frame)
        self.final[(self.count - 1) % self.size], self.ended[(self.count - 1) % self.size] = last, terminated

    def _put(self, frame: np.ndarray) -> None:
        row = self.count % self.size
        self.frames[row], self.first[row], self.final[row], self.ended[row] = frame, self.start, False, False
        self.count += 1

    def stacked(self, rows: np.ndarray) -> np.ndarray:
        """Stacks (n, H, W, C * stack), oldest frame first, the first frame repeated at an episode's start."""
        oldest = np.maximum(self.first[rows % self.size], self.count - self.size)
        back = [np.maximum(rows - k, oldest) % self.size for k in range(self.stack - 1, -1, -1)]
        return np.concatenate([self.frames[index] for index in back], axis=-1)

    def latest(self) -> np.ndarray:
        """The stack that the agent sees now."""
        return np.asarray(self.stacked(np.array([self.count - 1]))[0])

    def sample(self, batch: int, generator: np.random.Generator) -> Batch:
        """Rows drawn uniformly among those that have an action and a next frame."""
        rows = generator.integers(max(0, self.count - self.size), self.count - 1, 4 * batch)
        rows = rows[~self.final[rows % self.size]][:batch]
        rewards, discounts, nexts = np.zeros(len(rows)), np.ones(len(rows)), rows.copy()
        alive = np.ones(len(rows), bool)
        for k in range(self.n_step):
            here = (rows + k) % self.size
            alive = alive & (rows + k < self.count - 1) & ~self.final[here]
            rewards += np.where(alive, discounts * self.rewards[here], 0.0)
            discounts = np.where(alive, discounts * self.discount, discounts)
            nexts = np.where(alive, rows + k + 1, nexts)
        discounts = np.where(self.ended[nexts % self.size], 0.0, discounts)
        return Batch(
            torch.from_numpy(self.stacked(rows)),
            torch.from_numpy(self.actions[rows % self.size]),
            torch.from_numpy(rewards).float(),
            torch.from_numpy(self.stacked(nexts)),
            torch.from_numpy(discounts).float(),
        )
