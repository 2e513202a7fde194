"""Unknowable: what the last actions did is not in the observation (F10's kind).

Acting costs at once and pays later through h, a fading mean of the past actions that nothing shows.
"""

import numpy as np

from bcrl.data.dataset import Array
from bcrl_bench.proving.choices import Table
from bcrl_bench.proving.family import Family
from bcrl_bench.proving.hidden import Hidden, turned

FADES = 0.7


class HiddenState(Hidden):
    """h' = 0.7 h + 0.3 a, from 0."""

    def hidden_start(self, num: int, rng: np.random.Generator) -> Table:
        del rng
        return np.zeros(num)

    def hidden_next(self, hidden: Table, actions: Array) -> Table:
        return FADES * hidden + (1.0 - FADES) * actions

    def hidden_mean(self, steps: int, acting: float) -> Table:
        return np.asarray(acting * (1.0 - FADES ** np.arange(steps)))


def make(seed: int) -> HiddenState:
    taste, rng = turned(seed, 6)
    return HiddenState(effect=rng.uniform(-0.6, -0.2), taste=taste, weight=rng.uniform(1.0, 2.0))


FAMILY = Family(
    name="hidden_state", make=make, files=("../hidden.py", "../choices.py"), unknowable=True,
    length=20, noise=0.2, discounts=(0.9, 0.95, 1.0), horizons=(None, 20), cases=40, worlds=6, longest=250,
)  # fmt: skip
