"""A shop that orders stock: Poisson demand with a season, lost sales, costs of holding and of ordering.

Actions: order 0 to 10 pieces, there at once. Seen: stock and the season as cosine and sine.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array
from bcrl_bench.proving.controllers import Controller
from bcrl_bench.proving.family import Family
from bcrl_bench.proving.world import Policy

SEASON, MOST, SHELF = 12, 10, 30
PRICE, COST, HOLDING, DELIVERY = 2.0, 1.0, 0.12, 1.0


def order_up_to(level: float, trigger: float, extra: float) -> Controller:
    """Orders up to `level` (higher by `extra` in the season) once the stock is at `trigger` or below."""

    def act(seen: Array) -> Array:
        stock, aim = 10.0 * seen[:, 0].astype(np.float64), level + extra * seen[:, 2].astype(np.float64)
        wanted = np.where(stock <= trigger + 1e-3, np.round(aim - stock), 0.0)
        return np.clip(wanted, 0, MOST).astype(np.int64)

    return Controller(act)


@dataclass(frozen=True, eq=False)
class Shop:
    """State: pieces in stock, month."""

    demand: float
    swing: float
    policies: Mapping[str, Policy]
    num_actions: int = MOST + 1

    def start(self, num: int, rng: np.random.Generator) -> Array:
        return np.stack([rng.integers(0, 15, num), rng.integers(0, SEASON, num)], axis=1)

    def observe(self, state: Array) -> NDArray[np.float32]:
        angle = 2.0 * np.pi * state[:, 1] / SEASON
        return np.stack([state[:, 0] / 10.0, np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)

    def rate(self, month: NDArray[np.int64]) -> NDArray[np.float64]:
        """Mean demand of a month."""
        return np.asarray(self.demand * (1.0 + self.swing * np.sin(2.0 * np.pi * month / SEASON)))

    def step(
        self, state: Array, actions: Array, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], Array, NDArray[np.bool_]]:
        stock, month = state.T
        there = np.minimum(stock + actions, SHELF)
        sold = np.minimum(rng.poisson(self.rate(month)), there)
        rewards = PRICE * sold - COST * actions - DELIVERY * (actions > 0) - HOLDING * (there - sold)
        following = np.stack([there - sold, (month + 1) % SEASON], axis=1)
        return rewards, following, np.zeros(len(state), dtype=bool)


def make(seed: int) -> Shop:
    rng = np.random.default_rng([9, seed])
    demand, swing = float(rng.uniform(3.0, 5.0)), float(rng.uniform(0.2, 0.7))
    ladder = {
        "poor": order_up_to(demand, 1.0, 0.0),
        "medium": order_up_to(1.5 * demand, 3.0, 0.0),
        "good": order_up_to(2.2 * demand, demand, 2.0 * swing * demand),
        "other": order_up_to(2.0 * demand + 6.0, 2.0 * demand + 4.0, 0.0),
    }
    return Shop(demand, swing, ladder)


FAMILY = Family(
    name="inventory", make=make, files=("../controllers.py",),
    length=60, noise=0.15, discounts=(0.9, 0.95, 0.98, 1.0), horizons=(None, 24),
    longest=300,
)  # fmt: skip
