"""FQE's promises besides accuracy: endings, presets, intervals, resuming, saving."""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fqe_runs import QUICK, estimate, on

from bcrl.data.dataset import Dataset
from bcrl.estimate import Status
from bcrl.estimators.fqe import FQE, Flat, TargetNetwork
from bcrl.estimators.fqe.flat import relative_drift
from bcrl.estimators.fqe.network import Scale
from bcrl.methods import parse_method
from bcrl.networks import sees_pixels
from bcrl.question import Question
from bcrl.saved import load_estimate
from bcrl.training import Run
from bcrl_bench.worlds import chain, counterexample, pixel_lqr, random_tabular

SHORT = dataclasses.replace(QUICK, hidden=(16,), steps=300, flat=Flat(least_steps=300, check_every=50))


class Killed(Exception):
    pass


def kill_at(step):
    def show(progress):
        if progress["step"] >= step:
            raise Killed

    return show


@pytest.fixture(scope="module")
def data():
    return chain().dataset(20, 6, 0)


def test_a_killed_run_ends_as_if_it_had_never_stopped(data, tmp_path):
    method = dataclasses.replace(SHORT, members=3)
    uninterrupted = estimate(data, chain().target, discount=0.9, method=method)
    run = Run(folder=tmp_path, save_every=0.0, device="cpu")
    stopped = dataclasses.replace(run, show=kill_at(150))
    with pytest.raises(Killed):
        estimate(data, chain().target, discount=0.9, method=method, run=stopped)
    again = estimate(data, chain().target, discount=0.9, method=method, run=run)
    assert again.value == uninterrupted.value
    assert again.curves == uninterrupted.curves
    assert again.interval == uninterrupted.interval


@pytest.mark.slow
def test_a_process_killed_for_real_resumes_to_the_bit(tmp_path):
    script = f"""
import os, signal, sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[2])]!r}
from pathlib import Path
from fqe_runs import estimate
from test_fqe_runs import SHORT
from bcrl_bench.worlds import chain
from bcrl.training import Run
def show(progress):
    if len(sys.argv) > 2 and progress["step"] >= 150:
        os.kill(os.getpid(), signal.SIGKILL)
folder = Path(sys.argv[1]) if sys.argv[1] else None
run = Run(folder=folder, save_every=0.0, device="cpu", show=show)
print(repr(estimate(chain().dataset(20, 6, 0), chain().target, discount=0.9, method=SHORT, run=run).value))
"""

    def call(*arguments):
        return subprocess.run(
            [sys.executable, "-c", script, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    assert call(str(tmp_path), "kill").returncode == -signal.SIGKILL
    assert list(tmp_path.rglob("checkpoint.pt"))
    assert call(str(tmp_path)).stdout == call("").stdout != ""


def test_same_seed_same_bits_other_seed_others(data):
    first, second, third = (
        estimate(data, chain().target, discount=0.9, method=SHORT, seed=seed).value for seed in (1, 1, 2)
    )
    assert first == second != third


@pytest.mark.parametrize("hidden", [(16,), (256, 256)])
def test_a_member_does_not_depend_on_how_many_run_beside_it(hidden, data):
    steps = 40
    flat = Flat(least_steps=steps, check_every=20, stop=False)
    short = dataclasses.replace(SHORT, hidden=hidden, steps=steps, flat=flat)
    few, many = (
        estimate(data, chain().target, discount=0.9, method=dataclasses.replace(short, members=members))
        for members in (2, 5)
    )
    assert few.curves["member_values"] == many.curves["member_values"][:2]
    assert len(set(many.curves["member_values"])) == 5


def doubling():
    """One state leads to another with twice its number: a linear critic without standardising runs away."""
    return Dataset(
        observations={"observation": np.tile([[1.0], [2.0]], (50, 1))},
        actions=np.zeros((50, 1)),
        rewards=np.ones(50),
        terminated=np.zeros(50, dtype=bool),
        truncated=np.ones(50, dtype=bool),
        offsets=np.arange(51, dtype=np.int64),
        single=True,
    )


class Still:
    reads = None

    def act(self, observations):
        return np.zeros((len(observations), 1))


def test_a_diverging_run_says_so():
    method = dataclasses.replace(QUICK, hidden=(), lr=0.3, standardise=False, anchor=False, steps=20_000)
    answer = estimate(doubling(), Still(), discount=0.95, method=method)
    assert answer.status is Status.DIVERGED
    assert answer.verdict == "distrust"
    assert np.isnan(answer.value) and answer.interval is None
    assert answer.stats["steps"] < 20_000
    assert any("blew up" in reason for reason in answer.reasons)


def test_clipping_hides_the_divergence_and_is_counted():
    method = dataclasses.replace(
        QUICK, hidden=(), lr=0.3, standardise=False, anchor=False, clip=True, steps=4000
    )
    answer = estimate(doubling(), Still(), discount=0.95, method=method)
    assert answer.stats["clipped"] > 0.2
    assert next(c for c in answer.checks if c.name == "clipped targets").verdict == "distrust"


def test_too_few_steps_are_no_convergence(data):
    answer = estimate(
        data, chain().target, discount=0.99, method=dataclasses.replace(SHORT, steps=100, anchor=False)
    )
    assert answer.status is Status.LIMIT
    assert answer.verdict != "trust"
    assert not any("inf%" in reason or "nan" in reason for reason in answer.reasons)


def test_drift_sees_slow_approaches():
    steps = np.arange(1, 81)
    assert relative_drift(list(1.0 - np.exp(-steps / 400.0)), None, 0.0) > 0.2
    assert relative_drift(list(1.0 - np.exp(-steps / 5.0)), None, 0.0) < 1e-3
    assert relative_drift([1.0] * 80, [0.1] * 80, 0.0) == pytest.approx(0.1)
    assert relative_drift([1.0, 1.0, 1.0], None, 0.0) == float("inf")


def test_the_interval_comes_from_members(data):
    world = random_tabular()
    answer = on(world, 60, 20, method=dataclasses.replace(QUICK, members=5, hidden=(32,)))
    assert answer.interval is not None and answer.interval.low < answer.value < answer.interval.high
    assert len(answer.curves["member_values"]) == 5
    error = answer.value_function.standard_error({"": world.codes.astype(np.float32)})
    assert error.shape == (8,) and (error > 0.0).all()


@pytest.mark.slow
def test_coverage_of_the_interval():
    """Twenty datasets: the truth is inside nearly always, and the interval is not much too wide."""
    world = random_tabular()
    method = dataclasses.replace(QUICK, members=6, hidden=(32,), steps=1200)
    answers = [on(world, 100, 20, method=method, seed=seed) for seed in range(20)]
    inside = [world.value in answer.interval for answer in answers]
    ratio = np.mean([a.standard_error for a in answers]) / np.std([a.value for a in answers], ddof=1)
    print(f"coverage {np.mean(inside):.2f} of 0.95; standard error over actual spread {ratio:.2f}")
    assert np.mean(inside) >= 0.8
    assert 0.5 < ratio < 3.0


def test_saved_and_loaded_to_the_bit(data, tmp_path):
    answer = estimate(data, chain().target, discount=0.9, method=dataclasses.replace(SHORT, members=2))
    answer.save(tmp_path / "answer")
    loaded = load_estimate(tmp_path / "answer", policy=chain().target)
    where = chain().codes.astype(np.float32)
    assert np.array_equal(loaded.value_at(where), answer.value_at(where))
    values, low, high = loaded.value_at(where, interval=True)
    assert (low < values).all() and (values < high).all()


def test_pixels_have_a_step_limit_of_their_own(data):
    frames = pixel_lqr().dataset(2, 3, 0)
    for dataset, method, size, steps in (
        (data, FQE(), 256, 40_000),
        (frames, FQE(), 128, 1_200),
        (frames, FQE(reads="state"), 256, 40_000),
        (frames, FQE(steps=7, batch_size=5), 5, 7),
    ):
        recipe = method.completed(pixels=sees_pixels(dataset, method.reads))
        assert (recipe.batch_size, recipe.steps) == (size, steps)


@pytest.mark.parametrize("method", [FQE(), QUICK, FQE.dope(), FQE.d3rlpy(discrete=True)], ids=repr)
def test_its_text_makes_it_again(method):
    assert parse_method(repr(method)) == method


def test_presets_have_their_sources_numbers(data):
    dope = FQE.dope()
    assert dope.weight_decay * dope.lr == pytest.approx(1e-5)
    assert (dope.steps, dope.clip, dope.init, dope.adam_eps) == (1_000_000, True, "dope", 1e-7)
    assert dope.target_network == TargetNetwork(tau=0.005, every=1, answers=True)
    theirs = FQE.d3rlpy()
    assert (theirs.lr, theirs.batch_size, theirs.standardise) == (1e-4, 100, False)
    assert theirs.target_network == TargetNetwork(tau=1.0, every=100, answers=False)
    assert FQE.d3rlpy(discrete=True).loss == "huber"
    for preset in (FQE.dope(steps=100), FQE.d3rlpy(steps=100, discrete=True)):
        answer = estimate(data, chain().target, discount=0.9, method=preset)
        assert np.isfinite(answer.value) and answer.interval is None
        assert answer.status is Status.LIMIT


def test_unordered_transitions_and_given_starts():
    world = chain()
    data = world.dataset(40, 6, 0)
    loose = Dataset(
        observations={
            "observation": np.stack(
                [
                    data.observations["observation"][data.rows],
                    data.observations["observation"][data.rows + 1],
                ],
                axis=1,
            ).reshape(-1, 6)
        },
        actions=data.actions,
        rewards=data.rewards,
        terminated=data.terminated,
        truncated=np.ones(len(data), dtype=bool),
        offsets=np.arange(len(data) + 1, dtype=np.int64),
        num_actions=2,
        ordered=False,
        single=True,
    )
    answer = estimate(loose, world.target, discount=0.9, starts=world.codes[:1].astype(np.float32))
    assert answer.value == pytest.approx(world.value, rel=0.05)


def test_scale_of_outputs_and_bounds():
    def scale_of(world, length, standardise=True, horizon=None):
        question = Question.of(
            world.dataset(20, length, 0), {"p": world.target}, discount=0.9, horizon=horizon
        )
        return Scale.of(question, standardise=standardise)

    scale = scale_of(random_tabular(), 10)
    assert scale.ends and scale.mean == 0.0
    assert scale.limit == pytest.approx(np.abs(random_tabular().dataset(20, 10, 0).rewards).max() * 10.0)
    raw = scale_of(random_tabular(), 10, standardise=False)
    assert (raw.mean, raw.deviation, raw.output) == (0.0, 1.0, "value")
    finite = scale_of(random_tabular(), 10, standardise=False, horizon=3)
    assert finite.output == "per_step" and finite.longest == pytest.approx(1 + 0.9 + 0.81)
    ring = scale_of(chain(), 6)
    assert not ring.ends and ring.mean > 0.0
    low, high = ring.bounds(0.0)
    assert ring.mean + ring.deviation * low == pytest.approx(ring.low)
    assert ring.mean + ring.deviation * high == pytest.approx(ring.high)


def test_the_counterexample_is_solved_or_doubted():
    """Features that double make linear iterations blow up; this critic is right or says that it is not."""
    world = counterexample()
    answer = on(world, 100, 20, method=dataclasses.replace(QUICK, hidden=(32,)))
    assert answer.verdict != "trust" or abs(answer.value - world.value) < 0.1 * abs(world.value)
