"""dm_control's ball_in_cup-catch: swing a ball on a string into a cup; 1 while it is in, 0 elsewhere.

Poor to good: checkpoints of one SAC run. Other: a shorter run of another seed.
"""

from bcrl_bench.proving.control_worlds import control_copies
from bcrl_bench.proving.controllers import learned, learned_ladder, stepped_files
from bcrl_bench.proving.family import Family
from bcrl_bench.proving.stepped import SteppedWorld


def make(seed: int) -> SteppedWorld:
    """Always the same world."""
    del seed
    ladder = learned_ladder("ball_in_cup") | {"other": learned("ball_in_cup", "other")}
    return SteppedWorld(control_copies("ball_in_cup-catch"), ladder)


FAMILY = Family(
    name="ball_in_cup", make=make, files=stepped_files("control_worlds", "ball_in_cup", "other"),
    # A poor actor catches so seldom that the truth would be small beside its own spread.
    length=150, noise=0.2, regimes=("noisy", "good", "replay", "mixture"), episodes=(40, 80, 130),
    discounts=(0.97, 0.98), cases=20, worlds=1,
    rollouts=300, longest=320, batch=300,
)  # fmt: skip
