"""Core-seconds of several things, measured by turns in one run.

The processor time of this process, not the clock on the wall, so that a shared machine counts less; one
thread; the median over rounds, in each of which everything takes its turn.
"""

import time
from collections.abc import Callable, Mapping

import numpy as np
import torch

HOW = "processor time of one thread, by turns in one run, median over rounds"


def core_seconds(
    actions: Mapping[str, Callable[[], object]], rounds: int, repeats: int = 1
) -> dict[str, float]:
    """Median core-seconds of each action, after one turn that warms up; `repeats` calls a turn."""
    torch.set_num_threads(1)
    found: dict[str, list[float]] = {name: [] for name in actions}
    for action in actions.values():
        action()
    for _ in range(rounds):
        for name, action in actions.items():
            began = time.process_time()
            for _ in range(repeats):
                action()
            found[name].append((time.process_time() - began) / repeats)
    return {name: float(np.median(seconds)) for name, seconds in found.items()}


def matmul_rate(size: int = 1024, rounds: int = 5) -> float:
    """Float32 multiply-adds a core-second of a large matrix product: what this core can do."""
    a = torch.randn(size, size)
    return size**3 / core_seconds({"product": lambda: a @ a}, rounds, 3)["product"]


def row(ours: float, reference: float, ratio: float, unit: str, **more: object) -> dict[str, object]:
    """One entry of results/bench.json."""
    return {"ratio": ratio, "ours": ours, "reference": reference, "unit": unit, "how": HOW, **more}
