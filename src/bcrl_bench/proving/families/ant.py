"""Gymnasium's Ant: go forward on four legs; 1 a step for standing, ends when it jumps or topples.

Poor to good: checkpoints of one SAC run. Other: a shorter run of another seed.
"""

from bcrl_bench.proving.controllers import learned, learned_ladder, stepped_files
from bcrl_bench.proving.family import Family
from bcrl_bench.proving.gym_worlds import ant_copies
from bcrl_bench.proving.stepped import SteppedWorld


def make(seed: int) -> SteppedWorld:
    """Always the same world."""
    del seed
    return SteppedWorld(ant_copies(), learned_ladder("ant") | {"other": learned("ant", "other")})


FAMILY = Family(
    name="ant", make=make, files=stepped_files("gym_worlds", "ant", "other"),
    length=200, noise=0.2, episodes=(30, 60, 100),
    discounts=(0.95, 0.98), cases=20, worlds=1,
    rollouts=300, longest=320, batch=300,
)  # fmt: skip
