"""Sessions of 5 to 20 recommendations from 24 items of four topics, with the probabilities logged.

A visitor has an interest in each topic and grows tired of a topic that is shown again and again. A click is
worth the item's price. From the fifth recommendation on a tired visitor may leave; after the twentieth the
session is over. The observation says all: interests, tiredness, how many were shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array
from bcrl_bench.proving.choices import Softmax, Table
from bcrl_bench.proving.family import Family
from bcrl_bench.proving.world import Policy

TOPICS, ITEMS, FEWEST, MOST = 4, 24, 5, 20
SHARPNESS = {"poor": 0.5, "medium": 3.0, "good": 9.0}


@dataclass(frozen=True, eq=False)
class Session:
    """A shop. The state is (interests, tiredness, number shown), shape (n, 2 * TOPICS + 1).

    Attributes:
        price: of each item, shape (ITEMS,).
        appeal: what an item adds to its topic's interest, shape (ITEMS,).
    """

    price: Table
    appeal: Table

    num_actions = ITEMS

    @cached_property
    def policies(self) -> Mapping[str, Policy]:
        """Softmax of expected takings, ever sharper; "other" shows what is clicked most, whatever it costs,
        and does not see that visitors tire.
        """
        ladder = {name: Softmax(partial(self._takings, sharp)) for name, sharp in SHARPNESS.items()}
        return ladder | {"other": Softmax(lambda seen: 5.0 * self.click(_fresh(_state(seen))))}

    def _takings(self, sharp: float, seen: Array) -> Table:
        return np.asarray(sharp * self.price * self.click(_state(seen)))

    def click(self, state: Table) -> Table:
        """Probability that each item is clicked, shape (n, ITEMS)."""
        topic = np.arange(ITEMS) % TOPICS
        liking = state[:, topic] - 1.5 * state[:, TOPICS + topic] + self.appeal - 1.0
        return np.asarray(1.0 / (1.0 + np.exp(-liking)))

    def start(self, num: int, rng: np.random.Generator) -> Table:
        interests = rng.standard_normal((num, TOPICS))
        return np.concatenate([interests, np.zeros((num, TOPICS + 1))], axis=1)

    def observe(self, state: Array) -> NDArray[np.float32]:
        return (state / np.where(np.arange(2 * TOPICS + 1) == 2 * TOPICS, MOST, 1)).astype(np.float32)

    def step(
        self, state: Array, actions: Array, rng: np.random.Generator
    ) -> tuple[Table, Array, NDArray[np.bool_]]:
        rows, topic = np.arange(len(state)), np.asarray(actions) % TOPICS
        clicked = rng.random(len(state)) < self.click(state)[rows, actions]
        tired = 0.7 * state[:, TOPICS : 2 * TOPICS]
        tired[rows, topic] += 0.5
        shown = state[:, -1] + 1
        leaves = rng.random(len(state)) < 0.02 + 0.12 * tired[rows, topic] * ~clicked
        following = np.concatenate([state[:, :TOPICS], tired, shown[:, None]], axis=1)
        over = (shown >= MOST) | ((shown >= FEWEST) & leaves)
        return self.price[actions] * clicked, following, over


def _state(seen: Array) -> Table:
    state = np.array(seen, dtype=np.float64)
    state[:, -1] *= MOST
    return state


def _fresh(state: Table) -> Table:
    return np.concatenate([state[:, :TOPICS], np.zeros((len(state), TOPICS + 1))], axis=1)


def make(seed: int) -> Session:
    rng = np.random.default_rng([seed, 3])
    return Session(price=rng.uniform(0.5, 2.0, ITEMS), appeal=0.7 * rng.standard_normal(ITEMS))


FAMILY = Family(
    name="recommendation", make=make, files=("../choices.py",),
    # noise: under a twentieth, so that the logging policy itself counts as covered
    length=MOST, noise=0.04, episodes=(50, 100, 250, 500),
    discounts=(0.9, 0.99, 1.0), horizons=(None, 5, MOST), cases=40, worlds=6,
    rollouts=4_000, longest=MOST, batch=8_000,
)  # fmt: skip
