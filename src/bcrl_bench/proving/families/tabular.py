"""Random tables with ends: every action may end the world with probability up to 0.06."""

import numpy as np

from bcrl_bench.proving.family import Family
from bcrl_bench.proving.tables import Tables


def make(seed: int, num_states: int = 20, num_actions: int = 4) -> Tables:
    rng = np.random.default_rng([1, seed])
    shape = (num_states, num_actions)
    return Tables(
        transition=rng.dirichlet(np.full(num_states, 0.3), size=shape),
        ends=rng.uniform(0.0, 0.06, shape),
        reward=rng.uniform(0.0, 1.0, shape) + np.linspace(0.0, 1.0, num_states)[:, None],
        reward_std=0.3,
        first=rng.dirichlet(np.ones(num_states)),
        codes=np.eye(num_states),
    )


FAMILY = Family(
    name="tabular", make=make, files=("../tables.py",),
    length=40, noise=0.12,
    discounts=(0.9, 0.95, 0.99, 1.0), horizons=(None, 10), cases=48, worlds=12,
    longest=600,
)  # fmt: skip
