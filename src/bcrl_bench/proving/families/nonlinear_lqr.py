"""A bent linear world among distractors: x' = A x + B tanh(a) + 0.2 sin(2 x) + w, reward -log(1 + cost).

Six of the ten numbers that a policy sees wander on their own and mean nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array
from bcrl_bench.proving.family import Family
from bcrl_bench.proving.world import Policy

SIZE, DISTRACTORS = 4, 6


@dataclass(frozen=True, eq=False)
class Bent:
    """a = 1.5 tanh(K x)."""

    gain: NDArray[np.float64]
    reads: None = None

    def act(self, observations: Array) -> Array:
        return np.asarray(1.5 * np.tanh(np.asarray(observations, np.float64)[:, :SIZE] @ self.gain.T))


@dataclass(frozen=True, eq=False)
class BentWorld:
    """The world of the module's docstring; the state is what is seen."""

    a: NDArray[np.float64]
    b: NDArray[np.float64]
    keeps: NDArray[np.float64]
    policies: Mapping[str, Policy]
    num_actions: None = None

    def start(self, num: int, rng: np.random.Generator) -> Array:
        return np.concatenate(
            [1.0 + 0.6 * rng.standard_normal((num, SIZE)), rng.standard_normal((num, DISTRACTORS))], axis=1
        )

    def observe(self, state: Array) -> Array:
        return state

    def step(
        self, state: Array, actions: Array, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], Array, NDArray[np.bool_]]:
        x, noise = state[:, :SIZE], rng.standard_normal(state.shape)
        cost = (x**2).sum(axis=1) + 0.2 * (actions**2).sum(axis=1)
        push = np.tanh(actions) @ self.b.T
        following = x @ self.a.T + push + 0.2 * np.sin(2.0 * x) + 0.1 * noise[:, :SIZE]
        wander = self.keeps * state[:, SIZE:] + np.sqrt(1.0 - self.keeps**2) * noise[:, SIZE:]
        ended = np.zeros(len(state), dtype=bool)
        return -np.log1p(cost), np.concatenate([following, wander], axis=1), ended


def make(seed: int) -> BentWorld:
    rng = np.random.default_rng([2, seed])
    a = rng.standard_normal((SIZE, SIZE))
    a *= 0.75 / np.abs(np.linalg.eigvals(a)).max()
    b = np.linalg.qr(rng.standard_normal((SIZE, 2)))[0]
    pull = -b.T @ (a + 0.4 * np.eye(SIZE))  # undoes, in b's two directions, what the world does without it
    gains = {"poor": 0.1 * pull, "medium": 0.5 * pull, "good": 1.2 * pull}
    other = -0.8 * b.T + 0.2 * rng.standard_normal((2, SIZE))
    policies = {name: Bent(gain) for name, gain in (gains | {"other": other}).items()}
    return BentWorld(a, b, rng.uniform(0.5, 0.99, DISTRACTORS), policies)


FAMILY = Family(
    name="nonlinear_lqr", make=make,
    length=50, noise=0.3,
    discounts=(0.9, 0.95, 0.98, 1.0), horizons=(None, 30),
    longest=300,
)  # fmt: skip
