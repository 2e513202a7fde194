"""How training episodes begin, what helps in them, and when they end."""

from collections.abc import Sequence

import numpy as np

from bcrl_bench.policies.demonstrations import Demonstration
from bcrl_bench.policies.harness import LOOSEST, let_go, moved_level, pull, require_humanoid
from bcrl_bench.policies.starts import FIRST_FRONTIER, assisted_reset, fallen, moved_frontier
from bcrl_bench.tasks import ControlTask

LENGTH = 500  # agent steps of an episode from the task's own start


class Episodes:
    """One training episode after another in one world.

    Attributes:
        frontier: see starts.py.
        level: of the harness; 0 is none.
    """

    def __init__(
        self,
        task: ControlTask,
        shown: Sequence[Demonstration],
        generator: np.random.Generator,
        *,
        assisted: float,
        assisted_steps: int,
        harness: float,
    ) -> None:
        if harness:
            require_humanoid(task.name)
        self.task, self.shown, self.generator = task, shown, generator
        self.assisted, self.steps, self.harnessed = assisted, assisted_steps, harness > 0.0
        self.frontier, self.level = FIRST_FRONTIER, harness
        self.assisting, self.left, self.length = False, 0, 0
        self.pulled, self.earned = 0.0, 0.0

    def start_episode(self) -> np.ndarray:
        """An episode's first state; assisted ones join a demonstration on its way, where there are any."""
        self.assisting = self.generator.random() < self.assisted
        self.length = self.steps if self.assisting or self.harnessed else LENGTH
        self.left, self.earned = self.length, 0.0
        let_go(self.task)
        if self.harnessed:
            self.pulled = self.level * self.generator.uniform(LOOSEST, 1.0)
        if self.assisting and self.shown:
            one = self.shown[int(self.generator.integers(len(self.shown)))]
            return one.rejoin(self.task, int(self.generator.integers(len(one.actions))))
        if self.assisting:
            return assisted_reset(self.task, self.generator, self.frontier)
        return self.task.reset(seed=int(self.generator.integers(2**31)))[0]["state"]

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        """One agent step: the next state, the task's own reward, whether the world ended, whether the episode
        did.
        """
        if self.harnessed:
            pull(self.task, self.pulled)
        observation, reward, terminated, _, _ = self.task.step(action)
        self.left, self.earned = self.left - 1, self.earned + reward
        alone = self.assisting and not self.shown
        last = terminated or self.left == 0 or (alone and not self.harnessed and fallen(self.task))
        if last and alone:
            self.frontier = moved_frontier(self.task, self.frontier)
        return observation["state"], reward, terminated, last

    def judge(self) -> None:
        """Move the harness by what the episode earned."""
        if self.harnessed:
            mean = self.earned / (self.length - self.left)
            self.level = moved_level(self.level, mean, float(self.task.action_repeat))
