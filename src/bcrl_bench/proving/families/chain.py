"""A chain with rare rewards: 1 for reaching its end, nothing else; then back to the start. Exact.

A step to the right succeeds with probability 0.8 or so; one to the left always. Few logged episodes earn
anything.
"""

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from bcrl_bench.proving.family import Family
from bcrl_bench.proving.tables import Tables
from bcrl_bench.proving.world import Policy

LEFT, RIGHT = 0, 1


class Chain(Tables):
    """Policies go right with a probability of their own; "other" does so in the first half only."""

    @cached_property
    def policies(self) -> Mapping[str, Policy]:
        count = len(self.first)
        half = np.where(np.arange(count) < count // 2, 0.95, 0.6)
        right = {"poor": np.full(count, 0.56), "medium": np.full(count, 0.68), "good": np.full(count, 0.97)}
        return {
            name: self.soft(np.log(np.stack([1.0 - share, share], axis=1)))
            for name, share in (right | {"other": half}).items()
        }


def make(seed: int) -> Chain:
    rng = np.random.default_rng([4, seed])
    count = int(rng.integers(9, 14))
    forward = rng.uniform(0.7, 0.9, count)
    places = np.arange(count)
    transition = np.zeros((count, 2, count))
    transition[places, LEFT, np.maximum(places - 1, 0)] = 1.0
    transition[places, RIGHT, places] = 1.0 - forward
    transition[places, RIGHT, (places + 1) % count] += forward
    reward = np.zeros((count, 2))
    reward[-1, RIGHT] = forward[-1]  # in expectation; a simulated reward is this mean
    return Chain(
        transition=transition,
        ends=np.zeros((count, 2)),
        reward=reward,
        reward_std=0.0,
        first=np.eye(count)[0],
        codes=np.stack([places / count, np.sin(6.0 * places / count)], axis=1),
    )


FAMILY = Family(
    name="chain", make=make, files=("../tables.py",),
    length=60, noise=0.08,
    discounts=(0.95, 0.98, 0.99, 1.0), horizons=(None, 60), worlds=10,
    longest=1_000,
)  # fmt: skip
