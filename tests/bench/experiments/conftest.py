"""A grid small enough for tests: cartpole-swingup, a few short logs, every method with little training."""

from collections.abc import Callable
from pathlib import Path

import pytest

TINY = """
about = "for tests"
tasks = ["cartpole-swingup"]
discount = 0.9
episodes = 4
visited = 2

[datasets]
"025" = ["025"]
mixture = ["025", "100"]

[methods]
bcrl = "LSPE(BellmanComplete(steps=20, batch_size=256, dim=16))"
curl = "LSPE(CURL(steps=10, dim=32))"
spr = "LSPE(SPR(steps=10, dim=32))"
random = "LSPE(RandomFeatures(dim=50))"
fqe = "FQE(steps=50)"
dr = "DoublyRobust(q=FQE(steps=50), bandwidth=0.1)"
dice = "FlowDICE(steps=20, hidden=32)"
model = "ModelBased(one_step=OneStep(steps=30), num_rollouts=8)"
mean = "constant mean"
broken = "ImportanceSampling()"

[[parts]]
name = "a"
datasets = ["025", "mixture"]
policies = ["100"]
methods = {methods}
seeds = {seeds}
"""


@pytest.fixture
def tiny_profile(tmp_path) -> Callable[..., Path]:
    """Writes a small profile with these methods into the test's folder; its path."""

    def write(methods: list[str], seeds: int = 1) -> Path:
        path = tmp_path / "tiny.toml"
        path.write_text(TINY.format(methods=methods, seeds=seeds).replace("'", '"'))
        return path

    return write


@pytest.fixture
def make_record() -> Callable[..., dict]:
    """Makes a record as `run_cell` does, with these numbers."""
    return record_with


def record_with(task="t", dataset="025", policy="100", method="bcrl", seed=0, **changes) -> dict:
    value, truth = changes.pop("value", 90.0), changes.pop("truth", 100.0)
    curve = [10.0, 50.0, 80.0, 90.0]
    return {
        "experiment": {"task": task, "dataset": dataset, "policy": policy, "method": method, "seed": seed},
        "settings": {},
        "value": value,
        "verdict": "trust",
        "stats": {"iterations": 40.0},
        "curves": {
            "lspe": curve,
            "singular_values": [3.0, 2.0, 1.0],
            "train/step": [1.0, 2.0],
            "train/held_out/eps_mean": [0.2, 0.1],
            "train/lambda_min": [0.01, 0.02],
            "train/condition_number": [100.0, None],
        },
        "truth": {"value": truth},
        "starts": {"rmse": 20.0},
        "visited": {"steps": [0, 20], "rmse": 30.0, "rmse_at": [20.0, 40.0]},
        "timings": {"core": 5.0, "wall": 6.0},
        **changes,
    }
