"""Gymnasium's Ant: go forward on four legs; 1 a step for standing, ends when it jumps or topples.

Poor to good: checkpoints of one SAC run. Other: a shorter run of another seed.
"""

from bcrl_bench.proving.controllers import ladder_of, stepped_family, stepped_files
from bcrl_bench.proving.gym_worlds import ant_copies

FAMILY = stepped_family(
    "ant", ant_copies(), lambda: ladder_of("ant"), stepped_files("gym_worlds", "ant", "other"),
    length=200, noise=0.2, episodes=(30, 60, 100),
    discounts=(0.95, 0.98), cases=20, rollouts=300, longest=320, batch=300,
)  # fmt: skip
