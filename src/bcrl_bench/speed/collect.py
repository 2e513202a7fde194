"""Collection against a bare loop that only steps (and renders), both in two processes and in the same run.

Each is timed at two sizes and the difference taken, so that starting processes, the same for both, cancels
out. The two alternate; the ratio is the median of the repeats', because a shared machine slows now the one
and now the other.
    python -m bcrl_bench.speed.collect
"""

import json
import multiprocessing
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from bcrl_bench.collect import Collection, Source, collect
from bcrl_bench.policies.shipped import shipped_actor
from bcrl_bench.processes import one_thread
from bcrl_bench.rollouts import Behaviour, run_episode
from bcrl_bench.tasks import ControlTask

TASK, PROCESSES, STEPS = "cheetah-run", 2, 500
SIZES = {None: (10, 110), 84: (2, 10)}  # episodes, by image size
REPEATS = 5


def bare_episodes(pixels, episodes):
    # The collected actor's own actions: a cheetah that runs costs the physics more than one that twitches at
    # random.
    behaviour = Behaviour(shipped_actor(TASK, "025"))
    actions = run_episode(ControlTask(TASK, pixels=None), behaviour, (0,)).actions
    task = ControlTask(TASK, pixels=pixels)
    for episode in range(episodes):
        task.reset(seed=episode)
        for action in actions:
            task.step(action)


def bare_seconds(pixels, episodes):
    started = time.perf_counter()
    with one_thread(), multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        pool.starmap(bare_episodes, [(pixels, episodes // PROCESSES)] * PROCESSES)
    return time.perf_counter() - started


def collect_seconds(pixels, episodes):
    behaviour = Source("025", Behaviour(shipped_actor(TASK, "025")))
    wanted = Collection(TASK, (behaviour,), episodes=episodes, pixels=pixels, processes=PROCESSES)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        collect(wanted, Path(folder) / "data")
        return time.perf_counter() - started


def rates(pixels):
    """Agent steps per second of the bare loop and of collection, (repeats, 2), alternating."""
    few, many = SIZES[pixels]
    steps = (many - few) * STEPS
    return np.array(
        [
            [steps / (loop(pixels, many) - loop(pixels, few)) for loop in (bare_seconds, collect_seconds)]
            for _ in range(REPEATS)
        ]
    )


def measure():
    """Our speed over the bare loop's (1 = nothing lost), and the largest process's memory."""
    figures = {}
    for name, pixels in (("states", None), ("pixels", 84)):
        each = rates(pixels)
        ratios = each[:, 1] / each[:, 0]
        bare, ours = np.median(each, axis=0)
        peak = max(
            resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        figures[f"collect_vs_bare_{name}"] = {
            "ours": round(float(ours), 1),
            "reference": round(float(bare), 1),
            "unit": "agent steps/s",
            "ratio": round(float(np.median(ratios)), 3),
            "ratios": [round(float(ratio), 3) for ratio in ratios],
            "peak_megabytes": round(peak / 1024),
        }
    return figures


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
