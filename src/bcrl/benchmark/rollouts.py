"""Episodes of a policy on a task: the one loop that collection, evaluation and the truth share.

A behaviour is a policy's action plus Gaussian noise, clipped to the action box; the policy's own random action; or,
without a policy, a uniform one. The log density of an action is kept only where it exists: for the uniform policy and
for one that samples and knows its density. Clipping puts point masses on the bounds, where no density exists (the
tanh actors here sit on them most of the time), so clipped Gaussian data carry no log_prob and importance sampling
refuses them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.benchmark.tasks import ControlTask
from bcrl.errors import BadInput

Array = NDArray[Any]


@dataclass(frozen=True)
class Behaviour:
    """How actions are chosen; `policy=None` draws them uniformly.

    Attributes:
        policy: any policy that reads `state` or `pixels` (stacked as its `stack` says).
        noise: standard deviation of the Gaussian noise added to a deterministic action.
        sampled: draw from the policy's own distribution instead of acting deterministically.
    """

    policy: Any = None
    noise: float = 0.2
    sampled: bool = False

    @property
    def has_density(self) -> bool:
        """Whether every action's log density exists."""
        return self.policy is None or self.sampled

    def choose(
        self, task: ControlTask, seen: Mapping[str, Array], generator: np.random.Generator
    ) -> tuple[Array, float]:
        """An action (A,) and its log density (nan where it does not exist)."""
        low, high = task.action_space.low, task.action_space.high
        if self.policy is None:
            return generator.uniform(low, high).astype(np.float32), -float(np.log(high - low).sum())
        view = seen[self.policy.reads][None]
        if self.sampled:
            action = np.asarray(self.policy.sample(view, generator))
            return action[0].astype(np.float32), float(self.policy.log_prob(view, action)[0])
        action = np.asarray(self.policy.act(view))[0]
        if self.noise > 0:
            action = action + self.noise * generator.standard_normal(action.shape)
            action = np.minimum(
                np.maximum(action, low), high
            )  # np.clip takes three times as long on six numbers
        return action.astype(np.float32), float("nan")


@dataclass(frozen=True)
class Episode:
    """T transitions and T + 1 observations."""

    observations: dict[str, Array]
    actions: Array
    rewards: NDArray[np.float64]
    log_prob: NDArray[np.float64]
    terminated: bool


def check_fits(task: ControlTask, behaviour: Behaviour) -> None:
    """Refuse a policy that reads what the task does not show, or that was trained on another task."""
    if behaviour.policy is None:
        return
    if behaviour.policy.reads not in task.observation_space.spaces:
        raise BadInput(
            f"The policy reads {behaviour.policy.reads!r}; {task.name} was made without it. Pass pixels=64 (or another size)."
        )
    made_for = getattr(behaviour.policy, "task", task.name)
    if made_for != task.name:
        raise BadInput(f"The policy was trained on {made_for}; got the task {task.name}.")


def run_episode(task: ControlTask, behaviour: Behaviour, seed: tuple[int, ...]) -> Episode:
    """One episode until it ends or the task's limit; the seed fixes the start state and the noise."""
    assert task.limit is not None
    generator = np.random.default_rng(seed)
    observation, _ = task.reset(seed=int(generator.integers(2**31)))
    stored = {
        key: np.empty((task.limit + 1, *value.shape), value.dtype) for key, value in observation.items()
    }
    actions, rewards, log_prob = [], [], []
    over, terminated, step = False, False, 0
    stack = getattr(behaviour.policy, "stack", 1)
    while True:
        for key, value in observation.items():
            stored[key][step] = value
        if over:
            break
        action, density = behaviour.choose(task, _latest(stored, step, stack), generator)
        observation, reward, terminated, truncated, _ = task.step(action)
        actions.append(action)
        rewards.append(reward)
        log_prob.append(density)
        over, step = terminated or truncated, step + 1
    kept = {key: value[: step + 1] for key, value in stored.items()}
    return Episode(kept, np.array(actions), np.array(rewards), np.array(log_prob), terminated)


def _latest(stored: Mapping[str, Array], step: int, stack: int) -> dict[str, Array]:
    """The newest observation, frames stacked as the dataset will stack them: first frame repeated, oldest first."""
    seen = {key: value[step] for key, value in stored.items()}
    if stack > 1 and "pixels" in stored:
        frames = [stored["pixels"][max(0, step - back)] for back in range(stack - 1, -1, -1)]
        seen["pixels"] = np.concatenate(frames, axis=-1)
    return seen


def undiscounted_returns(task: ControlTask, behaviour: Behaviour, seeds: list[int]) -> NDArray[np.float64]:
    """Return of one episode a seed: what `measured` writes beside an actor."""
    check_fits(task, behaviour)
    return np.array([run_episode(task, behaviour, (seed,)).rewards.sum() for seed in seeds])
