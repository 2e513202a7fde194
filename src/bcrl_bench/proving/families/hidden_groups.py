"""Unknowable: ten patients, each with a level, made all episodes, and no column says which (F13's kind).

The interval of so many episodes is that of ten units.
"""

import numpy as np

from bcrl_bench.proving.choices import Table
from bcrl_bench.proving.family import Family
from bcrl_bench.proving.hidden import Hidden, turned

PATIENTS = 10


class Grouped(Hidden):
    """h is the patient's level, standard normal; patients are drawn anew for every log."""

    def hidden_start(self, num: int, rng: np.random.Generator) -> Table:
        levels = rng.standard_normal(PATIENTS)
        return np.asarray(levels[np.arange(num) * PATIENTS // num])

    def hidden_mean(self, steps: int, acting: float) -> Table:
        del acting
        return np.zeros(steps)


def make(seed: int) -> Grouped:
    taste, rng = turned(seed, 8)
    return Grouped(effect=rng.uniform(0.2, 0.8), taste=taste, weight=rng.uniform(0.7, 1.2))


FAMILY = Family(
    name="hidden_groups", make=make, files=("../hidden.py", "../choices.py"), unknowable=True,
    length=10, noise=0.2, episodes=(60, 120, 250, 500),
    discounts=(0.9, 0.95, 1.0), horizons=(None, 10), cases=40, worlds=6,
    longest=250,
)  # fmt: skip
