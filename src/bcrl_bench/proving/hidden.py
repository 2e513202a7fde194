"""Worlds with something that the log does not hold, so that no method can know the answer.

    x' = 0.8 x + noise                                seen, two numbers; actions do not move it
    r  = 1 + a (effect + taste . x) + weight * h + noise,   a in {0, 1}, h hidden

What h is and does is the family's. x begins as it goes on, so a mean over steps is a mean over a Gaussian.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array
from bcrl_bench.proving.choices import Softmax, Table, gauss_hermite
from bcrl_bench.proving.world import Policy

KEEPS, REWARD_STD = 0.8, 0.1
SHARPNESS = {"poor": -1.5, "medium": 0.5, "good": 2.5}


@dataclass(frozen=True, eq=False)
class Hidden(ABC):
    """The world of the module's docstring; the state is (x, h), shape (n, 3).

    Attributes:
        effect, taste, weight: see there.
    """

    effect: float
    taste: Table
    weight: float
    num_actions: int = field(default=2, init=False)

    @cached_property
    def policies(self) -> Mapping[str, Policy]:
        """More of action 1 the better the rung, and more where x asks for it; "other" looks elsewhere."""
        aside = np.array([-self.taste[1], self.taste[0]])
        ladder = {name: self._leaning(sharp, self.taste) for name, sharp in SHARPNESS.items()}
        return ladder | {"other": self._leaning(0.0, 3.0 * aside)}

    def _leaning(self, lean: float, direction: Table) -> Softmax:
        return Softmax(lambda seen: self.scores(seen, lean, direction))

    def scores(self, seen: Table, lean: float, direction: Table) -> Table:
        """Scores of the two actions at what a policy sees, shape (n, 2)."""
        return np.stack([np.zeros(len(seen)), lean + seen[:, :2] @ direction], axis=1)

    @abstractmethod
    def hidden_start(self, num: int, rng: np.random.Generator) -> Table:
        """h at the start, shape (num,)."""

    def hidden_next(self, hidden: Table, actions: Array) -> Table:
        """h after an action; by default it stays."""
        del actions
        return hidden

    @abstractmethod
    def hidden_mean(self, steps: int, acting: float) -> Table:
        """E[h] at each of so many steps of a policy that takes action 1 in a share `acting` of them."""

    def exact_value(self, policy: Policy, discount: float, horizon: int | None) -> float:
        points, weights = gauss_hermite(2, 60)
        acts = policy.probabilities(points)[:, 1]
        gain = float(weights @ (acts * (self.effect + points @ self.taste)))
        steps = horizon if horizon is not None else int(np.ceil(np.log(1e-12) / np.log(discount)))
        means = 1.0 + gain + self.weight * self.hidden_mean(steps, float(weights @ acts))
        return float(np.power(discount, np.arange(steps)) @ means)

    def start(self, num: int, rng: np.random.Generator) -> Table:
        return np.concatenate([rng.standard_normal((num, 2)), self.hidden_start(num, rng)[:, None]], axis=1)

    def observe(self, state: Array) -> NDArray[np.float32]:
        return state[:, :2].astype(np.float32)

    def step(
        self, state: Array, actions: Array, rng: np.random.Generator
    ) -> tuple[Table, Array, NDArray[np.bool_]]:
        seen, hidden = state[:, :2], state[:, 2]
        rewards = 1.0 + actions * (self.effect + seen @ self.taste) + self.weight * hidden
        rewards = rewards + REWARD_STD * rng.standard_normal(len(state))
        moved = KEEPS * seen + np.sqrt(1.0 - KEEPS**2) * rng.standard_normal(seen.shape)
        after = np.concatenate([moved, self.hidden_next(hidden, actions)[:, None]], axis=1)
        return rewards, after, np.zeros(len(state), dtype=bool)


def turned(seed: int, salt: int) -> tuple[Table, np.random.Generator]:
    """A taste of length a half in a random direction, and a generator for the rest of a world."""
    rng = np.random.default_rng([seed, salt])
    angle = rng.uniform(0.0, 2.0 * np.pi)
    return 0.5 * np.array([np.cos(angle), np.sin(angle)]), rng
