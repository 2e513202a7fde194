"""Tables whose rewards and ends come with the state that is arrived at: a goal, a discharge, a death."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array
from bcrl_bench.proving.tables import Table, Tables


@dataclass(frozen=True, eq=False, kw_only=True)
class Arrivals(Tables):
    """Rewards are without noise and depend on the next state alone; make it with `arrivals`.

    Terminal states keep to themselves and pay nothing, so `Tables` finds the values as it is.

    Attributes:
        arriving: reward of arriving at each state, shape (S,).
        terminal: states at which the world ends, shape (S,).
    """

    arriving: Table
    terminal: NDArray[np.bool_]

    def step(
        self, state: Array, actions: Array, rng: np.random.Generator
    ) -> tuple[Table, Array, NDArray[np.bool_]]:
        _, following, _ = super().step(state, actions, rng)
        return self.arriving[following], following, self.terminal[following]


def arrivals(
    transition: Table, arriving: Table, terminal: NDArray[np.bool_], first: Table, codes: Table
) -> dict[str, Any]:
    """The fields of an `Arrivals`."""
    kept = transition.copy()
    kept[terminal] = np.eye(len(terminal))[terminal][:, None]
    return {
        "transition": kept,
        "ends": np.zeros(kept.shape[:2]),
        "reward": np.where(terminal[:, None], 0.0, kept @ arriving),
        "first": first,
        "codes": codes,
        "arriving": arriving,
        "terminal": terminal,
    }
