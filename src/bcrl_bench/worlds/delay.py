"""A world in which the noise is where the value is, and the predictable part is worth nothing."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg

from bcrl_bench.worlds.base import World
from bcrl_bench.worlds.lqr import GaussianPolicy


@dataclass(frozen=True)
class SteadyPolicy:
    """The same action everywhere."""

    action: float
    reads: None = None

    def act(self, observations):
        return np.full((len(observations), 1), self.action)


@dataclass(frozen=True, eq=False)
class DelayWorld(World):
    """The reward is known a step ahead: r = x, x' = ahead + push a + noise, ahead' = noise; beside it,
    turning distractors.

    Complete features: [1, x, ahead + push a]. Distractors predict themselves without error, so a loss that
    takes the noise of phi' for incompleteness likes them better than `ahead`.

    Attributes:
        push: of an action on the next reward.
        noise: standard deviation of x' and of ahead'.
        turns: angles by which the distractor pairs turn.
        discount: of the value.
    """

    push: float = 0.5
    noise: float = 1.0
    turns: tuple[float, ...] = (0.1, 0.23, 0.37)
    discount: float = 0.9
    num_actions = None

    @cached_property
    def behaviour(self):
        return GaussianPolicy(np.zeros((1, 2 + 2 * len(self.turns))), 1.0)

    @cached_property
    def target(self):
        return SteadyPolicy(1.0)

    @cached_property
    def _turn(self):
        return linalg.block_diag(
            *[[[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]] for angle in self.turns]
        )

    @property
    def value(self):
        return float(self.start_features() @ self._weights)

    @property
    def _weights(self):
        """Q = weights . [1, x, ahead + push a]."""
        return np.array([self.push * self.discount**2 / (1.0 - self.discount), 1.0, self.discount])

    def horizon_value(self, horizon, discount):
        rewards = np.concatenate([[0.0, 2.0 + self.push], np.full(horizon, self.push)])[:horizon]
        return float(rewards @ discount ** np.arange(horizon))

    def q(self, observations, actions):
        return self.features(observations, actions) @ self._weights

    def v(self, observations):
        return self.policy_features(observations) @ self._weights

    def features(self, observations, actions):
        observations = np.asarray(observations, dtype=np.float64)
        following = observations[:, 1] + self.push * np.asarray(actions)[:, 0]
        return np.stack([np.ones(len(observations)), observations[:, 0], following], axis=1)

    def policy_features(self, observations):
        return self.features(observations, self.target.act(observations))

    def start_features(self):
        return np.array([1.0, 0.0, 2.0 + self.push])

    def start(self, num, rng):
        state = rng.standard_normal((num, 2 + 2 * len(self.turns)))
        state[:, 1] += 2.0
        return state

    def observe(self, state):
        return state

    def step(self, state, actions, rng):
        shake = self.noise * rng.standard_normal((len(state), 2))
        following = np.concatenate(
            [state[:, 1:2] + self.push * actions + shake[:, :1], shake[:, 1:], state[:, 2:] @ self._turn.T],
            axis=1,
        )
        return state[:, 0], following, np.zeros(len(state), dtype=bool)
