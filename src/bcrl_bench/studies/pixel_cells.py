"""Every method's defaults on pixel cheetah-run: core seconds, peak memory, value and verdict, one process each.

    python -m bcrl_bench.studies.pixel_cells DATA   runs the cells that are missing, writes results/pixel_cells.json
    python -m bcrl_bench.studies.pixel_cells DATA fqe model   these again

DATA is the folder of 10,000 transitions at 64 x 64 that this makes (evaluated: the shipped actor 100, which reads states):

    bcrl collect cheetah-run --policy 025 --noise 0.2 --episodes 20 --pixels 64 --stack 3 --seed 0 --out DATA

The goal is 12 core-minutes and 4 GB for each cell; core seconds count the whole process, imports included.
"""

import dataclasses
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[3]

OUT = ROOT / "results" / "pixel_cells.json"
TASK, LEVEL, DISCOUNT, SEED = "cheetah-run", "100", 0.99, 0
METHODS = {
    "is": "ImportanceSampling(bandwidth=0.1)",
    "random": "LSPE(RandomFeatures())",
    "model": "ModelBased()",
    "fqe": "FQE()",
    "dice": "BestDICE()",
    "dr": "DoublyRobust(bandwidth=0.1)",
    "bcrl": "LSPE(BellmanComplete())",
    "curl": "LSPE(CURL())",
    "spr": "LSPE(SPR())",
    "is, logging policy cloned": "ImportanceSampling(bandwidth=0.1)",
}
MODEL_STATS = ("reward_r2", "open_loop_error", "repeating_error")


def cell(data: str, name: str) -> dict:
    import bcrl
    from bcrl_bench.policies.shipped import shipped_actor

    dataset = bcrl.load_dataset(data)
    if "cloned" in name:
        dataset = dataclasses.replace(dataset, log_prob=None)
    clock = time.perf_counter()
    estimate = bcrl.evaluate(
        dataset, shipped_actor(TASK, LEVEL), discount=DISCOUNT, method=METHODS[name], seed=SEED
    )
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
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


def main(data: str, names: list[str]) -> None:
    done = json.loads(OUT.read_text()) if OUT.exists() else {}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    for name in names or [name for name in METHODS if name not in done]:
        command = [sys.executable, __file__, "--cell", data, name]
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=os.environ | threads)
        # Read again: another process may have added its cells since.
        done = json.loads(OUT.read_text()) if OUT.exists() else {}
        done[name] = json.loads(answer.stdout.splitlines()[-1])
        OUT.write_text(json.dumps({key: done[key] for key in METHODS if key in done}, indent=2) + "\n")
        print(name, {k: v for k, v in done[name].items() if k != "reasons"}, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--cell":
        print(json.dumps(cell(*sys.argv[2:])))
    else:
        main(sys.argv[1], sys.argv[2:])
