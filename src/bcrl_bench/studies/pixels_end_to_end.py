"""BellmanComplete from pixels: seconds, memory, and held-out eps_rel against that of the untrained encoder.

    python -m bcrl_bench.studies.pixels_end_to_end DATA

About four core-minutes; writes results/pixels_end_to_end.json. DATA is the folder of 10,000 transitions at 64
x 64, three frames a stack, that studies/pixel_cells.py describes. The evaluated policy is cheetah-run's actor
100, which reads states. No truth is looked at.
"""

import json
import resource
import sys
import time

import torch

import bcrl
from bcrl.data.storage.folder import write_json
from bcrl.policies.policy import AnyPolicy, target_actions
from bcrl.representations.bellman_complete import BellmanComplete
from bcrl.training import Run
from bcrl_bench.policies.shipped import shipped_actor
from bcrl_bench.repository import RESULTS

DISCOUNT = 0.99
FIGURES = ("held_out/eps_rel", "held_out/eps_mean", "held_out/reward_share", "held_out/td_error")


def untrained(dataset: bcrl.Dataset, policy: AnyPolicy) -> dict:
    """The same figures of the network as it starts: one step of length zero."""
    targets = [target_actions(dataset, policy)]
    still = BellmanComplete(steps=1, lr=0.0)
    metrics = still.fit(dataset, targets, discount=DISCOUNT, seed=0, run=Run()).metrics
    return {name: metrics[name][-1] for name in FIGURES}


def main(folder: str) -> None:
    dataset, policy = bcrl.load_dataset(folder), shipped_actor("cheetah-run", "100")
    wall, cpu = time.perf_counter(), time.process_time()
    estimate = bcrl.evaluate(dataset, policy, discount=DISCOUNT, method=bcrl.LSPE(BellmanComplete()), seed=0)
    record = {
        "command": "python -m bcrl_bench.studies.pixels_end_to_end DATA",
        "transitions": len(dataset),
        "threads": torch.get_num_threads(),
        "wall_seconds": round(time.perf_counter() - wall, 1),
        "core_seconds": round(time.process_time() - cpu, 1),
        "peak_gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2, 2),
        "verdict": estimate.verdict,
        "trained": {name: estimate.curves[f"train/{name}"][-1] for name in FIGURES},
        "untrained": untrained(dataset, policy),
        "curve_eps_rel": [round(x, 4) for x in estimate.curves["train/held_out/eps_rel"]],
        "curve_value": [round(x, 4) for x in estimate.curves["train/value"]],
    }
    write_json(RESULTS / "pixels_end_to_end.json", record)
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main(sys.argv[1])
