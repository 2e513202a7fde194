"""Gymnasium's Pusher: push a cylinder to a goal with a seven-joint arm; no end.

Poor to good: checkpoints of one SAC run. Other: a shorter run of another seed.
"""

from bcrl_bench.proving.controllers import ladder_of, stepped_family, stepped_files
from bcrl_bench.proving.gym_worlds import gym_copies

FAMILY = stepped_family(
    "pusher", gym_copies("Pusher-v5"), lambda: ladder_of("pusher"),
    stepped_files("gym_worlds", "pusher", "other"), length=100, noise=0.2, episodes=(40, 80, 160),
    discounts=(0.95, 0.98, 1.0), horizons=(None, 60), cases=20, rollouts=300, longest=320, batch=300,
)  # fmt: skip
