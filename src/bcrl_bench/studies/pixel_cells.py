"""Every method's defaults on pixel cheetah-run: core seconds, peak memory, value and verdict, one process
each.

    python -m bcrl_bench.studies.pixel_cells DATA                 the cells that are missing
    python -m bcrl_bench.studies.pixel_cells DATA fqe model       these again

About an hour of one core; writes results/pixel_cells.json. DATA is the folder of 10,000 transitions at 64 x
64 that this makes (evaluated: the shipped actor 100, which reads states):

    bcrl collect cheetah-run --policy 025 --noise 0.2 --episodes 20 --pixels 64 --stack 3 --seed 0 --out DATA

The goal is 12 core-minutes and 4 GB for each cell; core seconds count the whole process, imports included.
"""

import dataclasses
import functools
import json
import os
import resource
import subprocess
import sys
import time

import bcrl
from bcrl_bench.policies.shipped import shipped_actor
from bcrl_bench.processes import THREADS
from bcrl_bench.studies.study import Row, Study

STUDY = Study("pixel_cells", "python -m bcrl_bench.studies.pixel_cells DATA", key=("cell",))
TASK, LEVEL, DISCOUNT, SEED = "cheetah-run", "100", 0.99, 0
METHODS = {
    "is": "ImportanceSampling(bandwidth=0.1)",
    "random": "LSPE(RandomFeatures())",
    "model": "ModelBased()",
    "fqe": "FQE()",
    "dice": "FlowDICE()",
    "dr": "DoublyRobust(bandwidth=0.1)",
    "bcrl": "LSPE(BellmanComplete())",
    "curl": "LSPE(CURL())",
    "spr": "LSPE(SPR())",
    "is, logging policy cloned": "ImportanceSampling(bandwidth=0.1)",
}
MODEL_STATS = ("reward_r2", "open_loop_error", "repeating_error")


def cell(data: str, name: str) -> Row:
    """One evaluation, in a process of its own."""
    dataset = bcrl.load_dataset(data)
    if "cloned" in name:
        dataset = dataclasses.replace(dataset, log_prob=None)
    clock = time.perf_counter()
    estimate = bcrl.evaluate(
        dataset, shipped_actor(TASK, LEVEL), discount=DISCOUNT, method=METHODS[name], seed=SEED
    )
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cell": name,
        "method": estimate.method,
        "core_seconds": round(used.ru_utime + used.ru_stime, 1),
        "wall_seconds": round(time.perf_counter() - clock, 1),
        "peak_gigabytes": round(used.ru_maxrss / 1024**2, 2),
        "value": estimate.value,
        "interval": None if estimate.interval is None else [estimate.interval.low, estimate.interval.high],
        "status": str(estimate.status.value),
        "verdict": estimate.verdict,
        "reasons": list(estimate.reasons),
        **{key: estimate.stats[key] for key in MODEL_STATS if key in estimate.stats},
    }


def in_a_process(data: str, name: str) -> Row:
    """The same by another process with one thread: its peak memory and core seconds are the cell's own."""
    command = [sys.executable, "-m", "bcrl_bench.studies.pixel_cells", "--cell", data, name]
    environment = os.environ | dict.fromkeys(THREADS, "1")
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    return json.loads(answer.stdout.splitlines()[-1])


def main(data: str, names: list[str]) -> None:
    wanted = [(name,) for name in names or METHODS]
    STUDY.run(wanted, functools.partial(in_a_process, data), again=bool(names))


if __name__ == "__main__":
    if sys.argv[1] == "--cell":
        print(json.dumps(cell(*sys.argv[2:])))
    else:
        main(sys.argv[1], sys.argv[2:])
