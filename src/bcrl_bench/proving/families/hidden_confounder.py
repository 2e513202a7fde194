"""Unknowable: a severity that the log does not hold moved both the actions and the rewards (F9's kind).

Who logged saw it and acted the more the more severe; what is asked about does not see it.
"""

import numpy as np

from bcrl.data.dataset import Array
from bcrl_bench.proving.choices import Table
from bcrl_bench.proving.family import Family
from bcrl_bench.proving.hidden import Hidden, turned

PULL = 2.5  # on the score of action 1, up or down


class Confounded(Hidden):
    """h is 0 or 1 and stays."""

    def logger_sees(self, state: Array) -> Table:
        """x and the severity; policies that are given x alone do not know it."""
        return np.asarray(state, dtype=np.float64)

    def scores(self, seen: Table, lean: float, direction: Table) -> Table:
        found = super().scores(seen, lean, direction)
        if seen.shape[1] == 3:
            found[:, 1] += PULL * (2.0 * seen[:, 2] - 1.0)
        return found

    def hidden_start(self, num: int, rng: np.random.Generator) -> Table:
        return rng.integers(0, 2, num).astype(np.float64)

    def hidden_mean(self, steps: int, acting: float) -> Table:
        del acting
        return np.full(steps, 0.5)


def make(seed: int) -> Confounded:
    taste, rng = turned(seed, 7)
    return Confounded(effect=rng.uniform(-0.5, 0.5), taste=taste, weight=rng.uniform(1.0, 2.0))


FAMILY = Family(
    name="hidden_confounder", make=make, files=("../hidden.py", "../choices.py"), unknowable=True,
    length=15, noise=0.1, discounts=(0.9, 0.95, 1.0), horizons=(None, 15), cases=40, worlds=6, longest=250,
)  # fmt: skip
