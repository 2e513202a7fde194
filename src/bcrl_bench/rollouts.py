"""Episodes of a policy on a task: the one loop that collection, evaluation and the truth share.

A behaviour is a policy's action plus Gaussian noise, clipped to the action box; the policy's own random
action; or, without a policy, a uniform one. Clipping puts point masses on the bounds, where a plain density
does not exist, so the log_prob of clipped noise is taken with respect to length inside the box plus a unit
mass on each bound, coordinate by coordinate: log N(a; mu, s) inside, log Phi((low - mu) / s) and log Phi((mu
- high) / s) on the bounds. A target policy with `noise=` is measured the same way (bcrl.policies), so ratios
of the two are true likelihood ratios. A deterministic behaviour (noise 0) has no log_prob, and importance
sampling refuses its data.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bcrl.errors import BadInput
from bcrl_bench.tasks import ControlTask

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
        """Whether the actions have a log_prob."""
        return self.policy is None or self.sampled or self.noise > 0

    def chooser(self, task: ControlTask, generator: np.random.Generator) -> "Chooser":
        """How one episode's actions are chosen; noise and uniform actions are drawn here, in the order of the
        steps.
        """
        assert task.limit is not None
        low, high = (bound.astype(np.float64) for bound in (task.action_space.low, task.action_space.high))
        size = (task.limit, task.action_dim)
        policy, noise = self.policy, self.noise
        if policy is None:
            actions, density = iter(generator.uniform(low, high, size)), -float(np.log(high - low).sum())
            return lambda seen: (action := next(actions), action, density)
        if self.sampled:

            def sample(seen: Mapping[str, Array]) -> tuple[Array, Array, float]:
                drawn = np.asarray(policy.sample(seen[policy.reads][None], generator))
                return drawn[0], drawn[0], float(policy.log_prob(seen[policy.reads][None], drawn)[0])

            return sample
        noises = iter(noise * generator.standard_normal(size)) if noise > 0 else None

        def act(seen: Mapping[str, Array]) -> tuple[Array, Array, float]:
            centre = np.asarray(policy.act(seen[policy.reads][None]))[0]
            if noises is None:
                return centre, centre, np.nan
            # np.clip takes three times as long on six numbers
            return np.minimum(np.maximum(centre + next(noises), low), high), centre, np.nan

        return act


# An action (A,), the noise-free action it came from, and its log_prob if that is already known (else nan).
Chooser = Callable[[Mapping[str, Array]], tuple[Array, Array, float]]


def clipped_log_prob(
    actions: Array, centres: Array, noise: float, low: Array, high: Array
) -> NDArray[np.float64]:
    """Log probability of clip(centre + noise * N(0, 1)) for rows (n, A): a density inside, a mass on the
    bounds.
    """
    actions, centres = actions.astype(np.float64), centres.astype(np.float64)
    inside = -0.5 * ((actions - centres) / noise) ** 2 - np.log(noise * np.sqrt(2 * np.pi))
    below, above = special.log_ndtr((low - centres) / noise), special.log_ndtr((centres - high) / noise)
    each = np.where(actions <= low, below, np.where(actions >= high, above, inside))
    return np.asarray(each.sum(axis=1))


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
            f"The policy reads {behaviour.policy.reads!r}; {task.name} was made without it. Pass pixels=64 "
            "(or another size)."
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
    actions, centres, rewards, known = [], [], [], []
    over, terminated, step = False, False, 0
    choose, stack = behaviour.chooser(task, generator), getattr(behaviour.policy, "stack", 1)
    while True:
        for key, value in observation.items():
            stored[key][step] = value
        if over:
            break
        action, centre, log_prob = choose(observation if stack == 1 else _stacked(stored, step, stack))
        action = action.astype(np.float32)  # what is logged is what is done
        observation, reward, terminated, truncated, _ = task.step(action)
        actions.append(action)
        centres.append(centre)
        rewards.append(reward)
        known.append(log_prob)
        over, step = terminated or truncated, step + 1
    kept = {key: value[: step + 1] for key, value in stored.items()}
    taken, densities = np.array(actions), np.array(known)
    if behaviour.policy is not None and not behaviour.sampled and behaviour.noise > 0:
        box = task.action_space
        densities = clipped_log_prob(taken, np.array(centres), behaviour.noise, box.low, box.high)
    return Episode(kept, taken, np.array(rewards), densities, terminated)


def _stacked(stored: Mapping[str, Array], step: int, stack: int) -> dict[str, Array]:
    """The newest observation, frames stacked as the dataset will stack them: first frame repeated, oldest
    first.
    """
    seen = {key: value[step] for key, value in stored.items()}
    if "pixels" in stored:
        frames = [stored["pixels"][max(0, step - back)] for back in range(stack - 1, -1, -1)]
        seen["pixels"] = np.concatenate(frames, axis=-1)
    return seen


def undiscounted_returns(task: ControlTask, behaviour: Behaviour, seeds: list[int]) -> NDArray[np.float64]:
    """Return of one episode a seed: what `measured` writes beside an actor."""
    check_fits(task, behaviour)
    return np.array([run_episode(task, behaviour, (seed,)).rewards.sum() for seed in seeds])
