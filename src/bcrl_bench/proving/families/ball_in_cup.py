"""dm_control's ball_in_cup-catch: swing a ball on a string into a cup; 1 while it is in, 0 elsewhere.

Poor to good: checkpoints of one SAC run. Other: a shorter run of another seed.
"""

from bcrl_bench.proving.control_worlds import control_copies
from bcrl_bench.proving.controllers import ladder_of, stepped_family, stepped_files

FAMILY = stepped_family(
    "ball_in_cup", control_copies("ball_in_cup-catch"), lambda: ladder_of("ball_in_cup"),
    stepped_files("control_worlds", "ball_in_cup", "other"), length=150, noise=0.2, episodes=(40, 80, 130),
    # A poor actor catches so seldom that the truth would be small beside its own spread.
    regimes=("noisy", "good", "replay", "mixture"), discounts=(0.97, 0.98),
    cases=20, rollouts=300, longest=320, batch=300,
)  # fmt: skip
