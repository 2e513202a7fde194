"""Representation learning against the authors' released schedule: samples a second, same data, same threads,
one run.

The reference touches each sample in an M epoch and in a phi epoch; ours solves M in closed form, takes each
observation of a short run once for both sides of its transitions, and computes the policy's actions once for
all.

    python -m benchmarks.bcrl
"""

import json
import time

import numpy as np
import torch

from bcrl.data.dataset import Dataset
from bcrl.networks import Head, Pixels
from bcrl.policies.policy import TargetActions
from bcrl.representations.batches import Batches
from bcrl.representations.bellman_complete import BellmanComplete
from bcrl.representations.bellman_complete.fitting import Choice, network
from bcrl.representations.bellman_complete.learner import BellmanCompleteLearner
from bcrl_bench.speed.clock import core_seconds, row
from bcrl_bench.speed.clock import matmul_rate as matmul_core_rate
from bcrl_bench.speed.reference.released import Actor, Phi, Trainer

SIZE, STACK, ACTIONS, DIM, BATCH = 84, 3, 6, 512, 256
EPISODES, LENGTH = 28, 150  # enough transitions for 512 features (8 each)


def make_dataset():
    rng = np.random.default_rng(0)
    count = EPISODES * LENGTH
    truncated = np.zeros(count, dtype=bool)
    truncated[LENGTH - 1 :: LENGTH] = True
    return Dataset(
        observations={"pixels": rng.integers(0, 256, (count + EPISODES, SIZE, SIZE, 3), dtype=np.uint8)},
        actions=rng.uniform(-1, 1, (count, ACTIONS)).astype(np.float32),
        rewards=rng.uniform(0, 2, count),
        terminated=np.zeros(count, dtype=bool),
        truncated=truncated,
        offsets=np.arange(0, count + 1, LENGTH),
        stack=STACK,
    )


def our_learner(dataset, recipe):
    rows = len(dataset) + dataset.num_episodes
    targets = [TargetActions(np.zeros((rows, 1, ACTIONS), dtype=np.float32), np.ones((rows, 1)))]
    generator = torch.Generator().manual_seed(0)
    net = network(recipe, dataset, generator)
    batches = Batches(
        dataset,
        targets,
        net.encoder,
        np.arange(len(dataset)),
        batch_size=recipe.batch_size or BATCH,
        run_length=16,
        seed=0,
    )
    return BellmanCompleteLearner(
        recipe,
        net,
        batches,
        discount=0.99,
        steps=100,
        reward_variance=1.0,
        generator=generator,
        choice=Choice(False),
    )


def reference_batches(dataset):
    order = np.random.default_rng(0).permutation(len(dataset))
    while True:
        for first in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[first : first + BATCH]
            # The released code keeps stacks as (C, H, W) and turns them into floats in the encoder.
            s, s2 = (
                torch.from_numpy(
                    dataset.observe(dataset.rows[chosen] + step)["pixels"].transpose(0, 3, 1, 2).copy()
                )
                for step in (0, 1)
            )
            yield {
                "s": s,
                "s2": s2,
                "a": torch.from_numpy(dataset.actions[chosen]),
                "r": torch.from_numpy(dataset.rewards[chosen]).float(),
            }


def seconds(action, repeats):
    action()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return float(np.min(times))


def matmul_rate():
    """Float32 multiply-adds a second of a large matrix product: what the machine can do."""
    a = torch.randn(1536, 1536)
    return 1536**3 / seconds(lambda: a @ a, 5)


def encoder_work():
    """Multiply-adds of one encoding at the paper's architecture."""
    sides = [41, 39, 37, 35, 33]
    inputs = [3 * STACK, 32, 32, 32, 32]
    return sum(side**2 * 32 * 9 * c for side, c in zip(sides, inputs, strict=True)) + 32 * 33**2 * 50


RECIPE = BellmanComplete(
    dim=DIM,
    batch_size=BATCH,
    running_moments=0.9,
    completeness_weight=0.003,
    head=Head(DIM, 4, "relu"),
    pixels=Pixels(conv_layers=5),
)


def step_work():
    """Multiply-adds of the encoder in one step: forward and backward are three times the forward's work, and
    each observation of a run of 16 serves two transitions.
    """
    return BATCH * 3 * encoder_work() * 17 / 16


def share_on_pixels(rounds=1):
    """Share of the core's matrix-multiply rate in a step on pixels, at the paper's encoder."""
    learner = our_learner(make_dataset(), RECIPE)
    ours, rate = step_work() / core_seconds({"step": learner.step}, rounds)["step"], matmul_core_rate()
    return {"matmul_share_pixels": row(ours, rate, ours / rate, "multiply-adds a core-second")}


def measure(repeats=3):
    """Samples a second of both, with and without the pixel actor in the reference, and our share of the
    matmul rate.
    """
    dataset = make_dataset()
    torch.manual_seed(0)
    trainer = Trainer(Phi(3 * STACK, SIZE, ACTIONS, DIM, conv_layers=5, layers=4), DIM)
    actor, batches = Actor(3 * STACK, SIZE, ACTIONS), reference_batches(dataset)

    def reference(with_actor):
        for step in (trainer.m_step, trainer.phi_step):
            batch = next(batches)
            step(batch, actor(batch["s2"]) if with_actor else batch["a"])

    learner = our_learner(dataset, RECIPE)
    ours = BATCH / seconds(learner.step, repeats)
    full = BATCH / seconds(lambda: reference(True), repeats)
    bare = BATCH / seconds(lambda: reference(False), repeats)
    share = ours * step_work() / BATCH / matmul_rate()
    return share_on_pixels() | {
        "bcrl_vs_released": {
            "ours": round(ours, 1),
            "reference": round(full, 1),
            "unit": "samples/s",
            "ratio": round(ours / full, 2),
            "ratio_without_actor": round(ours / bare, 2),
            "share_of_matmul_rate": round(share, 2),
            "threads": torch.get_num_threads(),
        }
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
