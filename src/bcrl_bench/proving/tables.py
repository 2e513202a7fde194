"""Worlds of finitely many states: policies as tables, values by one linear solve, ladders by softness."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array
from bcrl_bench.proving.regimes import table_of
from bcrl_bench.proving.world import Policy
from bcrl_bench.worlds.tabular import TablePolicy, states_of

Table = NDArray[np.float64]
SOFTNESS = {"poor": 3.0, "medium": 1.0, "good": 0.2}  # in standard deviations of the action values


@dataclass(frozen=True, eq=False)
class Tables:
    """A world of S states and A actions.

    Attributes:
        transition: P(s' | s, a), shape (S, A, S).
        ends: probability that the world ends after (s, a), shape (S, A).
        reward: mean reward, shape (S, A).
        reward_std: standard deviation of Gaussian noise on it.
        first: start distribution, shape (S,).
        codes: observation of each state, shape (S, k).
        planned: discount for which the ladder's policies are good.
    """

    transition: Table
    ends: Table
    reward: Table
    reward_std: float
    first: Table
    codes: Table
    planned: float = 0.95

    @property
    def num_actions(self) -> int:
        return int(self.reward.shape[1])

    @cached_property
    def policies(self) -> Mapping[str, Policy]:
        """Softmax of the optimal action values, ever harder; "other" is greedy for the next reward alone."""
        best = self.optimal()
        spread = float(np.std(best - best.mean(axis=1, keepdims=True)))
        ladder = {name: self.soft(best / (soft * spread)) for name, soft in SOFTNESS.items()}
        near = self.reward / max(float(self.reward.std()), 1e-9)
        return ladder | {"other": self.soft(3.0 * near)}

    def soft(self, scores: Table) -> TablePolicy:
        """Softmax of scores, shape (S, A)."""
        table = np.exp(scores - scores.max(axis=1, keepdims=True))
        return TablePolicy(table / table.sum(axis=1, keepdims=True), self.codes)

    def optimal(self) -> Table:
        """Optimal action values, shape (S, A)."""
        values = np.zeros(self.reward.shape)
        for _ in range(2_000):
            following = self.reward + self.planned * self._onward(values.max(axis=1))
            if np.abs(following - values).max() < 1e-10:
                break
            values = following
        return values

    def _onward(self, values: Table) -> Table:
        return np.asarray((1.0 - self.ends) * (self.transition @ values))

    def values(self, policy: Policy, discount: float, horizon: int | None) -> Table:
        """V of every state, shape (S,)."""
        table = table_of(policy, self.observe(np.arange(len(self.first))), self.num_actions)
        reward = (table * self.reward).sum(axis=1)
        onward = np.einsum("sa,sat->st", table, self.transition * (1.0 - self.ends)[:, :, None])
        if horizon is None:
            return np.asarray(np.linalg.solve(np.eye(len(reward)) - discount * onward, reward))
        values = np.zeros(len(reward))
        for _ in range(horizon):
            values = reward + discount * onward @ values
        return values

    def exact_value(self, policy: Policy, discount: float, horizon: int | None) -> float:
        return float(self.first @ self.values(policy, discount, horizon))

    def exact_v(self, policy: Policy, observations: Array, discount: float, horizon: int | None) -> Table:
        return np.asarray(self.values(policy, discount, horizon)[states_of(observations, self.codes)])

    def start(self, num: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return np.asarray(rng.choice(len(self.first), size=num, p=self.first))

    def observe(self, state: Array) -> NDArray[np.float32]:
        return self.codes[state].astype(np.float32)

    @cached_property
    def _cumulative(self) -> Table:
        return np.asarray(np.cumsum(self.transition, axis=2)[:, :, :-1])

    def step(
        self, state: Array, actions: Array, rng: np.random.Generator
    ) -> tuple[Table, Array, NDArray[np.bool_]]:
        rewards = self.reward[state, actions] + self.reward_std * rng.standard_normal(len(state))
        following = (rng.random((len(state), 1)) > self._cumulative[state, actions]).sum(axis=1)
        return rewards, following, rng.random(len(state)) < self.ends[state, actions]
