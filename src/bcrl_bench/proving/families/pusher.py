"""Gymnasium's Pusher: push a cylinder to a goal with a seven-joint arm; no end.

Poor to good: checkpoints of one SAC run. Other: a shorter run of another seed.
"""

from bcrl_bench.proving.controllers import learned, learned_ladder, stepped_files
from bcrl_bench.proving.family import Family
from bcrl_bench.proving.gym_worlds import gym_copies
from bcrl_bench.proving.stepped import SteppedWorld


def make(seed: int) -> SteppedWorld:
    """Always the same world."""
    del seed
    return SteppedWorld(
        gym_copies("Pusher-v5"), learned_ladder("pusher") | {"other": learned("pusher", "other")}
    )


FAMILY = Family(
    name="pusher", make=make, files=stepped_files("gym_worlds", "pusher", "other"),
    length=100, noise=0.2, episodes=(40, 80, 160),
    discounts=(0.95, 0.98, 1.0), horizons=(None, 60), cases=20, worlds=1,
    rollouts=300, longest=320, batch=300,
)  # fmt: skip
