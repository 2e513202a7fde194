"""Six kills (kill -9) at random moments, two of them in a second training, two during a write, change no bit
of the result.
"""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from bcrl.networks import Head
from bcrl.policies.policy import target_actions
from bcrl.representations.bellman_complete import BellmanComplete, DoubleSampling, Stopping
from bcrl.training import Run, read_checkpoint
from bcrl_bench.worlds import lqr

RECIPE = BellmanComplete(
    dim=8,
    head=Head(hidden=16),
    batch_size=128,
    lr=1e-2,
    schedule="constant",
    steps=240,
    evaluations=120,
    stopping=Stopping(keep="best"),
    double_sampling=DoubleSampling(steps=1),
    steady=0.0,
)


def train_to_the_end(folder, out, save_every=0.0):
    """What the killed processes run; checkpoints, where there is a folder, so many seconds apart."""
    torch.set_num_threads(1)
    world = lqr()
    dataset = world.dataset(20, 20, 0)
    run = Run() if folder is None else Run(folder=Path(folder), save_every=save_every)
    fitted = RECIPE.fit(dataset, [target_actions(dataset, world.target)], discount=0.9, seed=5, run=run)
    curves = {f"curve/{name}": np.asarray(series) for name, series in fitted.metrics.items()}
    np.savez(out, **fitted.tensors(), **curves)


@pytest.fixture
def start():
    # Children are forked from a server that has imported torch once; a fork of this process might inherit its
    # threads.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bcrl"])
    begun = []

    def begin(folder, out, save_every=0.0):
        process = context.Process(target=train_to_the_end, args=(folder, out, save_every))
        process.start()
        begun.append(process)
        return process

    yield begin
    for process in begun:
        process.kill()
        process.join()


def wait_for(condition, process, seconds=240.0):
    """Poll fast: a checkpoint write takes a few milliseconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.is_alive() and time.monotonic() < deadline
        time.sleep(0.0005)


def kill_in_write(process, checkpoint):
    """Stop the process the moment a half written checkpoint lies there; kill it if it still does, else go on
    waiting.
    """
    aside = checkpoint.with_name(f".{checkpoint.name}.{process.pid}.part")
    while True:
        wait_for(aside.exists, process)
        os.kill(process.pid, signal.SIGSTOP)
        if aside.exists():
            break
        os.kill(process.pid, signal.SIGCONT)
    process.kill()
    process.join()
    assert aside.exists()


@pytest.mark.slow
def test_six_kills_change_no_bit(start, tmp_path):
    straight, resumed, folder = tmp_path / "straight.npz", tmp_path / "resumed.npz", tmp_path / "run"
    unhurt = start(str(tmp_path / "unhurt"), str(straight))
    unhurt.join(timeout=240)
    assert unhurt.exitcode == 0
    rng = np.random.default_rng(0)
    first, second = folder / "checkpoint.pt", folder / "again" / "checkpoint.pt"
    for number, checkpoint in enumerate((first, first, first, first, second, second)):
        process = start(str(folder), str(resumed))
        for _ in range(rng.integers(1, 5)):
            before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
            wait_for(
                lambda seen=before, path=checkpoint: path.exists() and path.stat().st_mtime_ns > seen, process
            )
        if number in (2, 5):
            kill_in_write(process, checkpoint)
        else:
            time.sleep(rng.uniform(0.0, 0.02))
            process.kill()
            process.join()
        assert process.exitcode == -signal.SIGKILL and not resumed.exists()
    last = start(str(folder), str(resumed))
    last.join(timeout=240)
    assert last.exitcode == 0
    assert_same_bits(straight, resumed)
    # Of the two trainings one is kept; the other's last checkpoint must be the same too.
    for path in ("checkpoint.pt", "again/checkpoint.pt"):
        one, two = (read_checkpoint(run / path) for run in (tmp_path / "unhurt", folder))
        assert one["history"] == two["history"] and one["step"] == two["step"]
        assert str(one["learner"]) == str(two["learner"])


def assert_same_bits(straight, resumed):
    with np.load(straight) as one, np.load(resumed) as two:
        assert set(one.files) == set(two.files)
        for name in one.files:
            assert np.array_equal(one[name], two[name], equal_nan=True), name


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_kills_at_moments_that_nothing_chose_change_no_bit(start, tmp_path, seed):
    """From before the first step to after the last one, with checkpoints a tenth of a second apart."""
    straight, resumed, folder = tmp_path / "straight.npz", tmp_path / "resumed.npz", tmp_path / "run"
    began = time.monotonic()
    unhurt = start(None, str(straight))
    unhurt.join(timeout=240)
    assert unhurt.exitcode == 0
    whole, rng, killed = time.monotonic() - began, np.random.default_rng(seed), 0
    for _ in range(6):
        process = start(str(folder), str(resumed), 0.1)
        process.join(timeout=rng.uniform(0.0, 0.6 * whole))
        if process.exitcode == 0:
            break
        process.kill()
        process.join()
        killed += process.exitcode == -signal.SIGKILL
    else:
        last = start(str(folder), str(resumed), 0.1)
        last.join(timeout=240)
        assert last.exitcode == 0
    assert killed > 0
    assert_same_bits(straight, resumed)
