"""Contextual bandits with 10, 100 and 1,000 actions: one decision, then the end.

A context of five numbers is a turned pair that matters beside three that do not. Rewards are smooth in the
pair and differ by action; noise has standard deviation 0.5. The value is an average over the pair, by
Gauss-Hermite quadrature.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array
from bcrl_bench.proving.choices import Softmax, Table, gauss_hermite
from bcrl_bench.proving.family import Family
from bcrl_bench.proving.regimes import table_of
from bcrl_bench.proving.world import Policy

SIZES = (10, 100, 1_000)
SHARPNESS = {"poor": 1.0, "medium": 4.0, "good": 10.0}  # of the softmax of guessed rewards
NUISANCE, REWARD_STD, ORDER = 3, 0.5, 60


@dataclass(frozen=True, eq=False)
class Bandit:
    """One decision.

    Attributes:
        taste: what each action needs of the pair, shape (A, 2).
        level: mean reward of each action where the pair is zero, shape (A,).
        guess: the ladder's errors about `taste`, shape (A, 2).
        turn: orthogonal, from the pair and the rest to the context, shape (5, 5).
    """

    taste: Table
    level: Table
    guess: Table
    turn: Table

    @property
    def num_actions(self) -> int:
        return len(self.level)

    @cached_property
    def policies(self) -> Mapping[str, Policy]:
        """Softmax of guessed rewards, ever sharper; "other" knows the levels alone."""
        ladder = {name: Softmax(partial(self._guessed, sharp)) for name, sharp in SHARPNESS.items()}
        return ladder | {"other": Softmax(lambda seen: np.tile(6.0 * self.level, (len(seen), 1)))}

    def _guessed(self, sharp: float, seen: Array) -> Table:
        return np.asarray(sharp * _rewards(self.pair(seen), self.guess, self.level))

    def pair(self, contexts: Array) -> Table:
        """What matters of a context, shape (n, 2)."""
        return np.asarray(contexts, dtype=np.float64) @ self.turn[:2].T

    def exact_value(self, policy: Policy, discount: float, horizon: int | None) -> float:
        """The mean over contexts; one decision is not discounted and lies within every horizon."""
        del discount, horizon
        points, weights = gauss_hermite(2, ORDER)
        contexts = np.concatenate([points, np.zeros((len(points), NUISANCE))], axis=1) @ self.turn
        return float(weights @ self._mean(policy, contexts))

    def exact_v(self, policy: Policy, observations: Array, discount: float, horizon: int | None) -> Table:
        del discount, horizon
        return self._mean(policy, observations)

    def _mean(self, policy: Policy, contexts: Array) -> Table:
        table = table_of(policy, contexts, self.num_actions)
        return np.asarray((table * _rewards(self.pair(contexts), self.taste, self.level)).sum(axis=1))

    def start(self, num: int, rng: np.random.Generator) -> Table:
        return rng.standard_normal((num, 2 + NUISANCE)) @ self.turn

    def observe(self, state: Array) -> NDArray[np.float32]:
        return state.astype(np.float32)

    def step(
        self, state: Array, actions: Array, rng: np.random.Generator
    ) -> tuple[Table, Array, NDArray[np.bool_]]:
        mean = _rewards(self.pair(state), self.taste, self.level)[np.arange(len(state)), actions]
        rewards = mean + REWARD_STD * rng.standard_normal(len(state))
        return rewards, self.start(len(state), rng), np.ones(len(state), dtype=bool)


def _rewards(pair: Table, taste: Table, level: Table) -> Table:
    """Mean reward of every action, shape (n, A)."""
    return np.asarray(level + np.tanh(pair @ taste.T))


def make(seed: int) -> Bandit:
    """Every third world has as many actions as another."""
    rng = np.random.default_rng([seed, 2])
    count = SIZES[seed % len(SIZES)]
    taste = 0.7 * rng.standard_normal((count, 2))
    return Bandit(
        taste=taste,
        level=0.5 + 0.4 * rng.standard_normal(count),
        guess=taste + 0.5 * rng.standard_normal((count, 2)),
        turn=np.linalg.qr(rng.standard_normal((2 + NUISANCE, 2 + NUISANCE)))[0],
    )


FAMILY = Family(
    name="bandit", make=make, files=("../choices.py",),
    # noise: under a twentieth, so that the logging policy itself counts as covered
    length=1, noise=0.04, episodes=(100, 250, 500, 2_000),
    discounts=(0.9,), cases=48, worlds=6,
    longest=1,
)  # fmt: skip
