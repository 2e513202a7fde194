"""dm_control's tasks as copies of a stepped world: two control steps an action, as the bench's tasks do."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl_bench.proving.stepped import Simulator
from bcrl_bench.tasks import ControlTask

Array = NDArray[Any]


class ControlSimulator(Simulator):
    """One task without its time limit; the suite's own box of actions is [-1, 1] already."""

    def __init__(self, task: ControlTask) -> None:
        self.task, self.action_dim = task, task.action_dim

    def reset(self, seed: int) -> None:
        """A start of the task's own distribution."""
        self.observation = np.asarray(self.task.reset(seed=seed)[0]["state"], dtype=np.float64)

    def step(self, action: Array) -> tuple[float, bool]:
        """The reward of both control steps, and whether the world ended."""
        inside = np.minimum(np.maximum(action, -1.0), 1.0)
        observation, reward, terminated, _, _ = self.task.step(inside)
        self.observation = np.asarray(observation["state"], dtype=np.float64)
        return reward, terminated


def control_copies(name: str) -> Callable[[], ControlSimulator]:
    """Makes copies of a task: `control_copies("walker-walk")`."""
    first: list[ControlTask] = []

    def make() -> ControlSimulator:
        if not first:
            first.append(ControlTask(name, pixels=None, limit=None))
        own = copy.copy(first[0])
        own.control = copy.copy(first[0].control)
        # A task may move parts of its model at a start (reacher's target), so no two copies share one.
        own.control._physics = first[0].control.physics.copy(share_model=False)
        own.control._task = copy.copy(first[0].control.task)
        return ControlSimulator(own)

    return make
