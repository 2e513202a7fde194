"""What every world offers, and the arrays that tests of linear methods read.

A world has a behaviour and a target policy that differ, their data, the exact value of the target policy at
the start distribution and at every observation, and, where they exist, features that are exactly Bellman
complete.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcrl.data.dataset import Dataset

Episode = dict[str, Any]


class World(ABC):
    """Subclasses simulate many episodes at once: `start`, `observe`, `step`."""

    discount: float
    num_actions: int | None
    behaviour: Any
    target: Any

    @property
    @abstractmethod
    def value(self) -> float:
        """Exact discounted value of the target policy at the start distribution."""

    @abstractmethod
    def horizon_value(self, horizon: int, discount: float) -> float:
        """Exact value of `horizon` steps of the target policy at the start distribution."""

    @abstractmethod
    def q(self, observations, actions) -> np.ndarray:
        """Exact Q of the target policy, shape (n,)."""

    @abstractmethod
    def v(self, observations) -> np.ndarray:
        """Exact V of the target policy, shape (n,)."""

    @abstractmethod
    def features(self, observations, actions) -> np.ndarray:
        """Exact features phi(s, a), shape (n, d)."""

    @abstractmethod
    def policy_features(self, observations) -> np.ndarray:
        """phi(s, target), the exact average over the target policy's actions, shape (n, d)."""

    @abstractmethod
    def start_features(self) -> np.ndarray:
        """E[phi(s0, target)] over the start distribution, exact, shape (d,)."""

    @abstractmethod
    def start(self, num, rng) -> np.ndarray: ...

    @abstractmethod
    def observe(self, state) -> np.ndarray | dict[str, np.ndarray]: ...

    @abstractmethod
    def step(self, state, actions, rng) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rewards, next states, terminated."""

    def episodes(self, num: int, length: int, rng: np.random.Generator, policy: Any = None) -> list[Episode]:
        """Episodes of the behaviour policy (or of `policy`), each cut off after `length` steps unless the
        world ends it.
        """
        policy = self.behaviour if policy is None else policy
        state = self.start(num, rng)
        seen, actions, log_probs, rewards, ends = [self.observe(state)], [], [], [], []
        for _ in range(length):
            action, log_prob = draw(policy, seen[-1], rng)
            reward, state, end = self.step(state, action, rng)
            seen.append(self.observe(state))
            for series, item in zip(
                (actions, log_probs, rewards, ends), (action, log_prob, reward, end), strict=True
            ):
                series.append(item)
        ended = np.stack(ends, axis=1)
        lengths = np.where(ended.any(axis=1), ended.argmax(axis=1) + 1, length)
        stacked = [np.stack(series, axis=1) for series in (actions, log_probs, rewards)]
        return [_cut(i, int(t), seen, *stacked, ended) for i, t in enumerate(lengths)]

    def dataset(self, num: int, length: int, seed: int, policy: Any = None) -> Dataset:
        """The same episodes as a Dataset."""
        return to_dataset(self, self.episodes(num, length, np.random.default_rng(seed), policy))


def draw(policy: Any, observations: Any, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Actions of any kind of policy at a batch of observations, with their log probability (nan when
    deterministic).
    """
    if isinstance(observations, Mapping) and policy.reads is not None:
        observations = observations[policy.reads]
    if hasattr(policy, "probabilities"):
        table = policy.probabilities(observations)
        actions = (rng.random((len(table), 1)) > np.cumsum(table, axis=1)[:, :-1]).sum(axis=1)
        return actions, np.log(table[np.arange(len(table)), actions])
    if hasattr(policy, "sample"):
        actions = policy.sample(observations, rng)
        return actions, policy.log_prob(observations, actions)
    actions = policy.act(observations)
    return actions, np.full(len(actions), np.nan)


def _cut(index, length, seen, actions, log_probs, rewards, ended) -> Episode:
    if isinstance(seen[0], Mapping):
        observations = {key: np.stack([s[key][index] for s in seen[: length + 1]]) for key in seen[0]}
    else:
        observations = np.stack([s[index] for s in seen[: length + 1]])
    terminated = ended[index, :length].copy()
    truncated = np.zeros(length, dtype=bool)
    truncated[-1] = not terminated[-1]
    return {
        "observations": observations,
        "actions": actions[index, :length],
        "rewards": rewards[index, :length].astype(np.float64),
        "terminated": terminated,
        "truncated": truncated,
        "log_prob": log_probs[index, :length],
    }


def to_dataset(world: World, episodes: list[Episode]) -> Dataset:
    """Episodes laid one after another."""
    single = not isinstance(episodes[0]["observations"], Mapping)
    keys = ["observation"] if single else list(episodes[0]["observations"])
    columns = {
        key: np.concatenate([e["observations"] if single else e["observations"][key] for e in episodes])
        for key in keys
    }
    flat = {
        key: np.concatenate([e[key] for e in episodes])
        for key in ("actions", "rewards", "terminated", "truncated", "log_prob")
    }
    lengths = [len(e["rewards"]) for e in episodes]
    log_prob = flat.pop("log_prob")
    return Dataset(
        observations=columns,
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        log_prob=log_prob if np.isfinite(log_prob).all() else None,
        single=single,
        num_actions=world.num_actions,
        stack=getattr(world, "stack", 1),
        **flat,
    )


def transitions(episodes: list[Episode]) -> dict[str, Any]:
    """s, a, r, s', terminated, truncated, the episode of each transition, and the first observation of each
    episode.
    """
    joined = {
        key: np.concatenate([e[key] for e in episodes])
        for key in ("actions", "rewards", "terminated", "truncated")
    }
    return {
        **joined,
        "observations": _join(episodes, slice(None, -1)),
        "next_observations": _join(episodes, slice(1, None)),
        "starts": _join(episodes, slice(0, 1)),
        "episode": np.repeat(np.arange(len(episodes)), [len(e["rewards"]) for e in episodes]),
    }


def _join(episodes, part):
    first = episodes[0]["observations"]
    if isinstance(first, Mapping):
        return {key: np.concatenate([e["observations"][key][part] for e in episodes]) for key in first}
    return np.concatenate([e["observations"][part] for e in episodes])


@dataclass(frozen=True, eq=False)
class Linear:
    """What linear methods read: phi(s, a), phi(s', pi), rewards, terminated, episode of each row, phi(s0, pi)
    of each episode.
    """

    phi: np.ndarray
    next_phi: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    episode: np.ndarray
    starts: np.ndarray

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        return self.phi, self.next_phi, self.rewards, self.terminated


def linear_inputs(world: World, episodes: list[Episode]) -> Linear:
    """The world's exact features along these episodes."""
    flat = transitions(episodes)
    return Linear(
        phi=world.features(flat["observations"], flat["actions"]),
        next_phi=world.policy_features(flat["next_observations"]),
        rewards=flat["rewards"],
        terminated=flat["terminated"],
        episode=flat["episode"],
        starts=world.policy_features(flat["starts"]),
    )
