"""dm_control's walker-walk: walk upright at 1 m/s; no end.

Poor to good: checkpoints of one SAC run of small networks. Other: the bench's own best actor, of another run.
"""

from bcrl_bench.proving.control_worlds import control_copies
from bcrl_bench.proving.controllers import actor_at, ladder_of, stepped_family, stepped_files
from bcrl_bench.proving.family import FOLDER

OTHER = "../../policies/weights/walker-walk/100.safetensors"

FAMILY = stepped_family(
    "walker_walk", control_copies("walker-walk"),
    lambda: ladder_of("walker_walk", actor_at(FOLDER / OTHER)),
    (*stepped_files("control_worlds", "walker_walk"), OTHER),
    length=200, noise=0.2, episodes=(30, 60, 100), discounts=(0.95, 0.98),
    cases=20, rollouts=200, longest=320, batch=200,
)  # fmt: skip
