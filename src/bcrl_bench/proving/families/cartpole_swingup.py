"""dm_control's cartpole-swingup: swing a pole up and keep it there; no end.

Poor to good: checkpoints of one SAC run of small networks. Other: the bench's own best actor, of another run.
"""

from bcrl_bench.proving.control_worlds import control_copies
from bcrl_bench.proving.controllers import actor_at, learned_ladder, stepped_files
from bcrl_bench.proving.family import FOLDER, Family
from bcrl_bench.proving.stepped import SteppedWorld

OTHER = "../../policies/weights/cartpole-swingup/100.safetensors"


def make(seed: int) -> SteppedWorld:
    """Always the same world."""
    del seed
    ladder = learned_ladder("cartpole_swingup") | {"other": actor_at(FOLDER / OTHER)}
    return SteppedWorld(control_copies("cartpole-swingup"), ladder)


FAMILY = Family(
    name="cartpole_swingup", make=make, files=(*stepped_files("control_worlds", "cartpole_swingup"), OTHER),
    length=200, noise=0.2, episodes=(30, 60, 100),
    discounts=(0.95, 0.98, 0.99), cases=20, worlds=1,
    rollouts=200, longest=600, batch=200,
)  # fmt: skip
