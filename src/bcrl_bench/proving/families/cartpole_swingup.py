"""dm_control's cartpole-swingup: swing a pole up and keep it there; no end.

Poor to good: checkpoints of one SAC run of small networks. Other: the bench's own best actor, of another run.
"""

from bcrl_bench.proving.control_worlds import control_copies
from bcrl_bench.proving.controllers import actor_at, ladder_of, stepped_family, stepped_files
from bcrl_bench.proving.family import FOLDER

OTHER = "../../policies/weights/cartpole-swingup/100.safetensors"

FAMILY = stepped_family(
    "cartpole_swingup", control_copies("cartpole-swingup"),
    lambda: ladder_of("cartpole_swingup", actor_at(FOLDER / OTHER)),
    (*stepped_files("control_worlds", "cartpole_swingup"), OTHER),
    length=200, noise=0.2, episodes=(30, 60, 100), discounts=(0.95, 0.98, 0.99),
    cases=20, rollouts=200, longest=600, batch=200,
)  # fmt: skip
