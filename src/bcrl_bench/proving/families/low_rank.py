"""Low rank: P(s' | s, a) = phi(s, a) mu(s') and r = phi(s, a) w with five features; forty states are seen as
random vectors. Exact.
"""

import numpy as np

from bcrl_bench.proving.family import Family
from bcrl_bench.proving.tables import Tables

RANK, STATES, ACTIONS = 5, 40, 4


def make(seed: int) -> Tables:
    rng = np.random.default_rng([3, seed])
    phi = rng.dirichlet(np.full(RANK, 0.25), size=(STATES, ACTIONS))
    return Tables(
        transition=phi @ rng.dirichlet(np.full(STATES, 0.1), size=RANK),
        ends=np.zeros((STATES, ACTIONS)),
        reward=phi @ rng.uniform(0.0, 1.0, RANK),
        reward_std=0.2,
        first=rng.dirichlet(np.full(STATES, 0.3)),
        codes=rng.standard_normal((STATES, 10)),
    )


FAMILY = Family(
    name="low_rank", make=make, files=("../tables.py",),
    length=50, noise=0.15,
    discounts=(0.9, 0.97, 0.99, 0.999, 1.0), horizons=(None, 20), worlds=10,
    longest=1_000,
)  # fmt: skip
