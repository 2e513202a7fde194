"""dm_control's walker-walk: walk upright at 1 m/s; no end.

Poor to good: checkpoints of one SAC run of small networks. Other: the bench's own best actor, of another run.
"""

from bcrl_bench.proving.control_worlds import control_copies
from bcrl_bench.proving.controllers import actor_at, learned_ladder, stepped_files
from bcrl_bench.proving.family import FOLDER, Family
from bcrl_bench.proving.stepped import SteppedWorld

OTHER = "../../policies/weights/walker-walk/100.safetensors"


def make(seed: int) -> SteppedWorld:
    """Always the same world."""
    del seed
    ladder = learned_ladder("walker_walk") | {"other": actor_at(FOLDER / OTHER)}
    return SteppedWorld(control_copies("walker-walk"), ladder)


FAMILY = Family(
    name="walker_walk", make=make, files=(*stepped_files("control_worlds", "walker_walk"), OTHER),
    length=200, noise=0.2, episodes=(30, 60, 100),
    discounts=(0.95, 0.98), cases=20, worlds=1,
    rollouts=200, longest=320, batch=200,
)  # fmt: skip
