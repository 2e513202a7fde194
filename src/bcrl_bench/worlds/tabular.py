"""Worlds with finitely many states: value by one linear solve.

After a termination the record holds an ordinary state, so that a method that forgets the mask bootstraps from
a real value and is caught.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bcrl_bench.worlds.base import World


@dataclass(frozen=True, eq=False)
class TablePolicy:
    """Action probabilities by state; the state is the row of `codes` nearest to the observation."""

    table: np.ndarray
    codes: np.ndarray
    reads: None = None

    def probabilities(self, observations):
        return self.table[states_of(observations, self.codes)]


def states_of(observations, codes):
    return np.argmin(
        (codes**2).sum(axis=1) - 2.0 * np.asarray(observations, dtype=np.float64) @ codes.T, axis=1
    )


@dataclass(frozen=True, eq=False)
class TabularWorld(World):
    """Tables of shape (S, A, ...).

    Attributes:
        transition: P(s' | s, a), shape (S, A, S), rows summing to 1.
        ends: probability that the world ends after (s, a), shape (S, A).
        reward: mean reward, shape (S, A).
        reward_std: standard deviation of Gaussian reward noise.
        first: start distribution, shape (S,).
        behaviour_table: shape (S, A).
        target_table: shape (S, A).
        feature_table: phi(s, a), shape (S, A, d).
        codes: observation of each state, shape (S, k).
        discount: of the value.
    """

    transition: np.ndarray
    ends: np.ndarray
    reward: np.ndarray
    reward_std: float
    first: np.ndarray
    behaviour_table: np.ndarray
    target_table: np.ndarray
    feature_table: np.ndarray
    codes: np.ndarray
    discount: float

    @property
    def num_actions(self):
        return self.reward.shape[1]

    @cached_property
    def behaviour(self):
        return TablePolicy(self.behaviour_table, self.codes)

    @cached_property
    def target(self):
        return TablePolicy(self.target_table, self.codes)

    @cached_property
    def values(self):
        """Exact V of every state, shape (S,)."""
        reward = (self.target_table * self.reward).sum(axis=1)
        return np.linalg.solve(np.eye(len(reward)) - self.discount * self._continues, reward)

    @property
    def _continues(self):
        goes_on = self.transition * (1.0 - self.ends)[:, :, None]
        return np.einsum("sa,sat->st", self.target_table, goes_on)

    @property
    def value(self):
        return float(self.first @ self.values)

    def horizon_value(self, horizon, discount):
        reward, values = (self.target_table * self.reward).sum(axis=1), np.zeros(len(self.first))
        for _ in range(horizon):
            values = reward + discount * self._continues @ values
        return float(self.first @ values)

    @cached_property
    def action_values(self):
        """Exact Q, shape (S, A)."""
        return self.reward + self.discount * (1.0 - self.ends) * (self.transition @ self.values)

    def occupancy(self):
        """Normalised discounted occupancy of the target policy with the mass that terminates left out, shape
        (S, A).
        """
        states = np.linalg.solve(np.eye(len(self.first)) - self.discount * self._continues.T, self.first)
        return (1.0 - self.discount) * states[:, None] * self.target_table

    def q(self, observations, actions):
        return self.action_values[states_of(observations, self.codes), actions]

    def v(self, observations):
        return self.values[states_of(observations, self.codes)]

    def features(self, observations, actions):
        return self.feature_table[states_of(observations, self.codes), actions]

    def policy_features(self, observations):
        table = np.einsum("sa,sad->sd", self.target_table, self.feature_table)
        return table[states_of(observations, self.codes)]

    def start_features(self):
        return np.einsum("s,sa,sad->d", self.first, self.target_table, self.feature_table)

    def start(self, num, rng):
        return rng.choice(len(self.first), size=num, p=self.first)

    def observe(self, state):
        return self.codes[state].astype(np.float32)

    def step(self, state, actions, rng):
        rewards = self.reward[state, actions] + self.reward_std * rng.standard_normal(len(state))
        cumulative = np.cumsum(self.transition[state, actions], axis=1)[:, :-1]
        following = (rng.random((len(state), 1)) > cumulative).sum(axis=1)
        return rewards, following, rng.random(len(state)) < self.ends[state, actions]


def one_hot_features(num_states, num_actions):
    return np.eye(num_states * num_actions).reshape(num_states, num_actions, -1)


def random_tabular(seed=0, num_states=8, num_actions=3, discount=0.9, reward_std=0.2):
    """Random transitions and rewards; every action may end the world with probability up to 0.1.

    The target prefers each state's better rewarded actions, so that acting at s' as if at s costs it
    something.
    """
    rng = np.random.default_rng(seed)
    shape = (num_states, num_actions)
    gain = rng.uniform(0.0, 1.0, shape)
    preference = np.exp(5.0 * gain)
    return TabularWorld(
        transition=rng.dirichlet(np.full(num_states, 0.4), size=shape),
        ends=rng.uniform(0.0, 0.1, shape),
        reward=gain + np.linspace(0.0, 1.0, num_states)[:, None],
        reward_std=reward_std,
        first=rng.dirichlet(np.ones(num_states)),
        behaviour_table=rng.dirichlet(np.full(num_actions, 3.0), size=num_states),
        target_table=preference / preference.sum(axis=1, keepdims=True),
        feature_table=one_hot_features(*shape),
        codes=np.eye(num_states),
        discount=discount,
    )


def chain(length=6, discount=0.9):
    """A ring walked once per episode of `length` steps: taking its truncation for a termination halves the
    value.

    Correct value: sum_t discount^t r_t / (1 - discount^length). With truncation taken for termination: the
    numerator.
    """
    shape = (length, 2)
    target = np.stack([np.linspace(0.9, 0.1, length), np.linspace(0.1, 0.9, length)], axis=1)
    reward = np.stack([np.linspace(0.0, 1.0, length), np.linspace(2.0, 1.0, length)], axis=1)
    return TabularWorld(
        transition=np.broadcast_to(np.roll(np.eye(length), 1, axis=1)[:, None], (*shape, length)).copy(),
        ends=np.zeros(shape),
        reward=reward,
        reward_std=0.0,
        first=np.eye(length)[0],
        behaviour_table=np.full(shape, 0.5),
        target_table=target,
        feature_table=one_hot_features(*shape),
        codes=np.eye(length),
        discount=discount,
    )


def low_rank(seed=0, rank=5, num_states=30, num_actions=3, discount=0.9):
    """P(s' | s, a) = phi(s, a)^T mu(s') and r = phi(s, a)^T w: the `rank` features are exactly linear Bellman
    complete.
    """
    rng = np.random.default_rng(seed)
    shape = (num_states, num_actions)
    phi = rng.dirichlet(np.full(rank, 0.3), size=shape)
    return TabularWorld(
        transition=phi @ rng.dirichlet(np.full(num_states, 0.2), size=rank),
        ends=np.zeros(shape),
        reward=phi @ rng.uniform(0.0, 1.0, rank),
        reward_std=0.1,
        first=rng.dirichlet(np.full(num_states, 0.3)),
        behaviour_table=rng.dirichlet(np.full(num_actions, 2.0), size=num_states),
        target_table=rng.dirichlet(np.full(num_actions, 0.3), size=num_states),
        feature_table=phi,
        codes=np.eye(num_states),
        discount=discount,
    )


def bandit(seed=0, num_actions=4):
    """Eight contexts (corners of a cube), one decision, then the end; reward linear in the context, by
    action.
    """
    rng = np.random.default_rng(seed)
    codes = np.array(np.meshgrid([-1.0, 1.0], [-1.0, 1.0], [-1.0, 1.0])).reshape(3, -1).T
    context = np.concatenate([np.ones((8, 1)), codes], axis=1)
    weights = rng.normal(size=(4, num_actions)) + np.eye(4, num_actions) * 2.0
    shape = (8, num_actions)
    return TabularWorld(
        transition=np.full((*shape, 8), 1.0 / 8.0),
        ends=np.ones(shape),
        reward=context @ weights,
        reward_std=0.5,
        first=rng.dirichlet(np.full(8, 2.0)),
        behaviour_table=rng.dirichlet(np.full(num_actions, 3.0), size=8),
        target_table=rng.dirichlet(np.full(num_actions, 0.4), size=8),
        feature_table=np.einsum("sk,ab->sabk", context, np.eye(num_actions)).reshape(*shape, -1),
        codes=codes,
        discount=0.0,
    )


def counterexample(discount=0.95, jump=0.2, small=0.1):
    """Two states whose one feature doubles: Q = phi exactly (weight 1), yet LSPE's operator exceeds 1 off
    policy.

    Action 1 leads to state 1 and is the target policy; the behaviour takes it with probability `jump` and
    else goes back to state 0. Rewards are whatever makes Q(s, a) = phi(s, a), so they are not zero.
    """
    feature = np.array([[small, 1.0], [small, 2.0]])
    to = np.array([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]])
    return TabularWorld(
        transition=to,
        ends=np.zeros((2, 2)),
        reward=feature - discount * (to @ feature[:, 1]),
        reward_std=0.0,
        first=np.array([1.0, 0.0]),
        behaviour_table=np.tile([1.0 - jump, jump], (2, 1)),
        target_table=np.tile([0.0, 1.0], (2, 1)),
        feature_table=feature[:, :, None],
        codes=np.eye(2),
        discount=discount,
    )
