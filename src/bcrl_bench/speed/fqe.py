"""FQE against d3rlpy 2.8.1: same data, same policy (built by d3rlpy, exported to ONNX), same network, batch
256, two threads.

Ratio: fqe_vs_d3rlpy, our steps a second over theirs, at least 2. Each side takes turns and keeps its best.
Our time holds the policy's actions and the value curve; theirs is `fit` without evaluators.

    python -m bcrl_bench.speed.fqe      values after 20k steps, three seeds each -> results/fqe_d3rlpy.json

d3rlpy pins its own gymnasium and lives in an environment of its own, made on the first run (D3RLPY_VENV names
another).
"""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import numpy as np
import torch

from bcrl.data.dataset import Dataset
from bcrl.data.storage.folder import write_json
from bcrl.estimators.fqe.method import FQE
from bcrl.policies import load_policy
from bcrl.training import Run
from bcrl_bench.asking import ask
from bcrl_bench.repository import RESULTS, ROOT

HERE = Path(__file__).parent
VENV = Path(os.environ.get("D3RLPY_VENV", ROOT.parent / "d3rlpy-venv"))
PACKAGES = ("torch==2.13.0", "d3rlpy==2.8.1", "onnx", "onnxscript")
DISCOUNT, BATCH, THREADS = 0.99, 256, 2
EPISODES, LENGTH, STATE, ACTION = 100, 200, 17, 6


def make_arrays(seed=0, episodes=EPISODES, length=LENGTH):
    """A stable linear system with actions at random and a reward in (0, 1], in the size of cheetah-run's
    states.
    """
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((STATE, STATE)))[0]
    push = 0.3 * rng.standard_normal((STATE, ACTION))
    x = rng.standard_normal((episodes, STATE))
    rows = {"observations": [], "actions": [], "rewards": []}
    for _ in range(length):
        actions = rng.uniform(-1.0, 1.0, (episodes, ACTION))
        reward = np.exp(-np.square(x[:, :4]).mean(axis=1) - 0.1 * np.square(actions).mean(axis=1))
        for name, value in (("observations", x), ("actions", actions), ("rewards", reward)):
            rows[name].append(value.astype(np.float32))
        x = 0.95 * x @ turn.T + actions @ push.T + 0.1 * rng.standard_normal(x.shape)
    return {name: np.stack(values, axis=1) for name, values in rows.items()}


def make_dataset(arrays):
    """The same transitions that d3rlpy uses: none out of an episode's last observation."""
    truncated = np.zeros((EPISODES, LENGTH - 1), dtype=bool)
    truncated[:, -1] = True
    count = EPISODES * (LENGTH - 1)
    return Dataset(
        observations={"observation": arrays["observations"].reshape(-1, STATE)},
        actions=arrays["actions"][:, :-1].reshape(count, ACTION),
        rewards=arrays["rewards"][:, :-1].reshape(-1).astype(np.float64),
        terminated=np.zeros(count, dtype=bool),
        truncated=truncated.reshape(-1),
        offsets=np.arange(EPISODES + 1, dtype=np.int64) * (LENGTH - 1),
        single=True,
    )


def d3rlpy(*arguments):
    """One run of reference/fqe_d3rlpy.py in its own environment, which is made where it is missing."""
    python = VENV / "bin" / "python"
    if not python.exists():
        venv.create(VENV, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
    script = HERE / "reference" / "fqe_d3rlpy.py"
    threads = {"OMP_NUM_THREADS": str(THREADS), "MKL_NUM_THREADS": str(THREADS)}
    done = subprocess.run(
        [python, script, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | threads,
    )
    if done.returncode != 0:
        raise RuntimeError(f"d3rlpy failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


class Match:
    """Data and policy in a folder, for both sides."""

    def __init__(self, folder):
        self.path, onnx = Path(folder) / "data.npz", Path(folder) / "policy.onnx"
        arrays = make_arrays()
        np.savez(self.path, **arrays)
        d3rlpy("export", self.path, onnx)
        self.dataset, self.policy = make_dataset(arrays), load_policy(onnx)

    def theirs(self, steps, seed=0):
        return d3rlpy("fit", self.path, steps, seed)

    def ours(self, steps, seed=0, method=None):
        torch.set_num_threads(THREADS)
        method = method or FQE.d3rlpy(steps=steps, batch_size=BATCH)
        answers = ask(
            method,
            self.dataset,
            {"policy": self.policy},
            discount=DISCOUNT,
            seed=seed,
            run=Run(device="cpu"),
        )
        return answers["policy"]


def measure(rounds=2, steps=1200):
    """Steps a second of both, by turns."""
    with tempfile.TemporaryDirectory() as folder:
        question = Match(folder)
        ours, theirs = [], []
        for _ in range(rounds):
            theirs.append(question.theirs(steps)["steps_per_second"])
            ours.append(2 * steps / question.ours(2 * steps).timings["training"])
    return {
        "fqe_vs_d3rlpy": {
            "ratio": max(ours) / max(theirs),
            "ours": max(ours),
            "reference": max(theirs),
            "unit": "steps/s",
        }
    }


def compare_values(steps=20_000, seeds=3):
    """The value of both after `steps` steps, with standard errors over seeds; and that of our default
    recipe.
    """
    with tempfile.TemporaryDirectory() as folder:
        question = Match(folder)
        theirs = [question.theirs(steps, seed)["value"] for seed in range(seeds)]
        ours = [question.ours(steps, seed).value for seed in range(seeds)]
        best = question.ours(0, 0, dataclasses.replace(FQE(), members=1))
    error = float(np.hypot(np.std(ours, ddof=1), np.std(theirs, ddof=1)) / np.sqrt(seeds))
    difference = float(np.mean(ours) - np.mean(theirs))
    return {
        "d3rlpy": theirs,
        "ours": ours,
        "steps": steps,
        "difference": difference,
        "standard_error": error,
        "relative": abs(difference) / abs(float(np.mean(theirs))),
        "agree": abs(difference) < max(0.03 * abs(float(np.mean(theirs))), 2.0 * error),
        "default_recipe": {"value": best.value, "steps": best.stats["steps"], "status": best.status.value},
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(found := compare_values(), indent=2) + "\n")
    write_json(RESULTS / "fqe_d3rlpy.json", {"command": "python -m bcrl_bench.speed.fqe", **found})
