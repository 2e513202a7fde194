"""FQE against d3rlpy 2.8.1: same data, same policy (built by d3rlpy, exported to ONNX), same network, batch
256, one thread, processor time.

Ratios: fqe_vs_d3rlpy, our steps a core-second and member over theirs, at least 5; dr_vs_fqe, at most 2.

    python -m bcrl_bench.speed.fqe      values after 20k steps, three seeds each -> results/fqe_d3rlpy.json

d3rlpy pins its own gymnasium and lives in an environment of its own, made on the first run (D3RLPY_VENV names
another); all else there is as in constraints.txt.
"""

import dataclasses
import functools
import itertools
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
from bcrl.estimators.fqe.flat import Flat
from bcrl.estimators.fqe.learner import FQELearner
from bcrl.estimators.fqe.method import FQE
from bcrl.estimators.weighting.doubly_robust import DoublyRobust
from bcrl.policies import load_policy
from bcrl.question import Question
from bcrl.training import Run
from bcrl_bench.asking import ask
from bcrl_bench.repository import RESULTS, ROOT
from bcrl_bench.speed.clock import core_seconds, matmul_rate, row

HERE = Path(__file__).parent
VENV = Path(os.environ.get("D3RLPY_VENV", ROOT.parent / "d3rlpy-venv"))
PACKAGES = ("torch==2.13.0", "d3rlpy==2.8.1", "onnx", "onnxscript")
DISCOUNT, BATCH, THREADS = 0.99, 256, 1
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
        tested = (ROOT / "constraints.txt").read_text().splitlines()
        constraints = VENV / "constraints.txt"
        constraints.write_text("\n".join(line for line in tested if not line.startswith("gymnasium==")))
        subprocess.run([python, "-m", "pip", "install", "-q", "-c", str(constraints), *PACKAGES], check=True)
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

    def learner(self, members, recipe=None):
        """Our learner on the same data, policy and batch."""
        recipe = recipe or dataclasses.replace(FQE.d3rlpy(batch_size=BATCH), members=members)
        question = Question.of(self.dataset, {"policy": self.policy}, discount=DISCOUNT)
        target = question.targets["policy"]
        return FQELearner.of(recipe.completed(pixels=False), question, target, torch.device("cpu"))

    def answer(self, method):
        return ask(method, self.dataset, {"policy": self.policy}, discount=DISCOUNT, run=Run(device="cpu"))

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


def measure(rounds=3, steps=150):
    """Steps a core-second and member of both, by turns; and what DoublyRobust adds to the FQE inside it.

    Ours trains four members side by side, as the default does, with d3rlpy's recipe and network; d3rlpy
    trains one. Both count training alone: ours knows the policy's actions, theirs asks it at each step.
    """
    with tempfile.TemporaryDirectory() as folder:
        question = Match(folder)
        learners = {members: question.learner(members) for members in (4, 1)}
        ours = {members: [] for members in learners}
        theirs = []
        for _ in range(rounds):
            theirs.append(question.theirs(steps)["steps_per_core_second"])
            for members, learner in learners.items():
                seconds = core_seconds({"step": learner.step}, 1, steps)["step"]
                ours[members].append(members / seconds)
        four, one, reference = (float(np.median(rates)) for rates in (ours[4], ours[1], theirs))
        work = _multiply_adds(learners[4]) * four / matmul_rate()
        more = {"ratio_of_one_member_alone": one / reference, "share_of_matmul_rate": work}
        found = row(four, reference, four / reference, "steps a core-second and member", **more)
        return {"fqe_vs_d3rlpy": found, "dr_vs_fqe": _doubly_robust(question)}


def _multiply_adds(learner):
    """Of one step and member: Q(s, a) forward, its gradient (weights of all layers, inputs of all but the
    first), and the target network at s'.
    """
    layers = [inputs * outputs for inputs, outputs in itertools.pairwise(learner.online.critics.widths)]
    return BATCH * (4 * sum(layers) - layers[0])


def _doubly_robust(question, steps=100):
    """An answer of either: as many steps as FQE's default takes at least, and all the rest as measured.

    What DoublyRobust does besides does not depend on the number of FQE's steps, so few are enough to see it.
    """
    short = FQE(steps=steps, flat=Flat(least_steps=steps, check_every=steps))
    asked = {"dr": DoublyRobust(q=short, bandwidth=0.3), "fqe": short}
    seconds = core_seconds(
        {name: functools.partial(question.answer, method) for name, method in asked.items()}, 1
    )
    step = core_seconds({"step": question.learner(4, FQE()).step}, 1, steps)["step"]
    rest = (FQE().flat.least_steps - steps) * step
    ours, reference = seconds["dr"] + rest, seconds["fqe"] + rest
    return row(ours, reference, ours / reference, "core-seconds an answer of 4,000 steps")


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
