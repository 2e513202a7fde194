"""Shipped actors: recorded returns reproduced exactly, levels ordered, the training loop's pieces right."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from bcrl.errors import BadInput
from bcrl_bench.policies.actor import NumpyActor
from bcrl_bench.policies.sac import SAC, Buffer, Learner
from bcrl_bench.policies.shipped import (
    WEIGHTS,
    shipped_actor,
    shipped_levels,
    shipped_policy,
    shipped_record,
)
from bcrl_bench.policies.train import Training, train
from bcrl_bench.rollouts import Behaviour, undiscounted_returns
from bcrl_bench.tasks import ControlTask

SHIPPED = sorted(str(path.relative_to(WEIGHTS)) for path in WEIGHTS.glob("*/*.safetensors"))


PIXELS = sorted(str(path.relative_to(WEIGHTS)) for path in WEIGHTS.glob("*/*/*.safetensors"))


def returns_of(actor, seeds):
    return undiscounted_returns(ControlTask(actor.task, pixels=None), Behaviour(actor, noise=0.0), seeds)


# The same episode: processors of one kind and two makers differ by 3e-7 on cartpole; another episode differs
# by far more.
SAME = 1e-5


@pytest.mark.parametrize("name", SHIPPED)
def test_a_recorded_return_is_reproduced(name):
    actor = NumpyActor.load(WEIGHTS / name)
    recorded, seeds = json.loads(actor.metadata["returns"]), json.loads(actor.metadata["seeds"])
    assert len(recorded) == len(seeds) == int(actor.metadata["episodes"]) == 50
    assert np.isclose(np.mean(recorded), float(actor.metadata["return_mean"]), atol=1e-3)
    np.testing.assert_allclose(returns_of(actor, seeds[:2]), recorded[:2], rtol=SAME)


@pytest.mark.parametrize("name", SHIPPED)
def test_weights_are_read_and_written_to_the_bit(name, tmp_path):
    actor, wanted = NumpyActor.load(WEIGHTS / name), load_file(WEIGHTS / name)
    actor.save(tmp_path / "again.safetensors")
    again = NumpyActor.load(tmp_path / "again.safetensors")
    assert again.metadata == actor.metadata and again.to_bytes() == actor.to_bytes()
    assert set(actor.tensors) == set(wanted)
    for part, value in wanted.items():
        assert actor.tensors[part].dtype == value.dtype == np.float32
        np.testing.assert_array_equal(actor.tensors[part], value)


def test_a_pixel_actor_is_no_state_actor():
    with pytest.raises(BadInput, match="a state actor needs"):
        NumpyActor.load(WEIGHTS / PIXELS[0])


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the last bits of a convolution depend on it
    yield
    torch.set_num_threads(before)


def pixel_actor(name):
    """The task at the actor's frame size, the actor, its recorded returns."""
    task, level = name.removesuffix(".safetensors").split("/", 1)
    about = shipped_record(task, level)
    world = ControlTask(task, pixels=int(about["pixels"]))
    return (
        world,
        Behaviour(shipped_policy(task, level), noise=0.0),
        np.array(json.loads(about["returns"])),
        about,
    )


def test_an_actor_from_pixels_is_shipped():
    assert "cheetah-run/pixels64/100.safetensors" in PIXELS


def assert_reproduced(task, behaviour, recorded, about, seeds):
    """In the mean: convolutions have other last bits on other processors, of the same kind too, hence other
    episodes.
    """
    assert about["processor"]
    found = undiscounted_returns(task, behaviour, seeds)
    assert abs(found.mean() - recorded.mean()) <= 3.5 * recorded.std(ddof=1) / np.sqrt(len(seeds))


@pytest.mark.parametrize("name", PIXELS)
def test_a_pixel_actors_recorded_return_is_reproduced(name, one_thread):
    task, behaviour, recorded, about = pixel_actor(name)
    assert len(recorded) == int(about["episodes"]) and json.loads(about["seeds"]) == list(
        range(len(recorded))
    )
    assert np.isclose(recorded.mean(), float(about["return_mean"]), atol=1e-3)
    assert_reproduced(task, behaviour, recorded, about, [0])


@pytest.mark.parametrize("name", PIXELS)
def test_a_pixel_actor_earns_most_of_what_its_teacher_does(name):
    task, level = name.removesuffix(".safetensors").split("/", 1)
    student, teacher = shipped_record(task, level), shipped_record(task, level.rpartition("/")[2])
    assert float(student["return_mean"]) >= 0.7 * float(teacher["return_mean"])


@pytest.mark.slow
@pytest.mark.parametrize("name", PIXELS)
def test_a_pixel_actor_agrees_on_fresh_seeds(name, one_thread):
    task, behaviour, recorded, about = pixel_actor(name)
    assert_reproduced(task, behaviour, recorded, about, list(range(5)))
    fresh = undiscounted_returns(task, behaviour, list(range(1_000, 1_020)))
    error = np.sqrt(fresh.var(ddof=1) / len(fresh) + recorded.var(ddof=1) / len(recorded))
    assert abs(fresh.mean() - recorded.mean()) <= 3 * error


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_all_returns_are_reproduced_and_fresh_seeds_agree(name):
    actor = NumpyActor.load(WEIGHTS / name)
    recorded = np.array(json.loads(actor.metadata["returns"]))
    np.testing.assert_allclose(returns_of(actor, json.loads(actor.metadata["seeds"])), recorded, rtol=SAME)
    fresh = returns_of(actor, list(range(1_000, 1_030)))
    error = np.sqrt(fresh.var(ddof=1) / len(fresh) + recorded.var(ddof=1) / len(recorded))
    assert abs(fresh.mean() - recorded.mean()) <= 3 * error


@pytest.mark.parametrize("task", sorted({name.partition("/")[0] for name in SHIPPED}))
def test_levels_are_ordered_and_further_apart_than_two_standard_errors(task):
    actors = [shipped_actor(task, level) for level in shipped_levels(task)]
    assert len({actor.metadata["seeds"] for actor in actors}) == 1
    returns = np.array([json.loads(actor.metadata["returns"]) for actor in actors])
    gaps = returns[:-1] - returns[1:]  # from the same start states
    assert (gaps.mean(axis=1) > 2 * gaps.std(axis=1, ddof=1) / np.sqrt(gaps.shape[1])).all()


def test_unknown_levels_are_named():
    with pytest.raises(BadInput, match="100"):
        shipped_actor("cheetah-run", "099")
    with pytest.raises(BadInput, match="cheetah-run"):
        shipped_actor("cheetah-rum", "100")


def test_numpy_actor_equals_the_network_that_was_trained(tmp_path):
    learner = Learner(SAC(width=32), 5, 2)
    learner.mean, learner.scale = torch.randn(5), torch.rand(5) + 0.5
    states = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    with torch.no_grad():
        wanted = learner.actor(learner.normalise(torch.from_numpy(states))).numpy()
    NumpyActor(learner.export(), {"task": "x"}).save(tmp_path / "actor.safetensors")
    loaded = NumpyActor.load(tmp_path / "actor.safetensors")
    np.testing.assert_allclose(loaded.act({"state": states}), wanted, atol=1e-5)


def test_an_adopted_actor_acts_as_before():
    learner, given = Learner(SAC(), 17, 6), shipped_actor("cheetah-run", "100")
    learner.mean, learner.scale = torch.randn(17), torch.rand(17) + 0.5
    learner.adopt(given.tensors)
    states = np.random.default_rng(0).normal(size=(7, 17)).astype(np.float32)
    np.testing.assert_allclose(NumpyActor(learner.export(), {}).act(states), given.act(states), atol=1e-4)


def test_buffer_holds_n_step_returns_cut_at_ends():
    buffer = Buffer(10, 1, 1, n_step=3, discount=0.5)
    states = [np.array([float(i)], dtype=np.float32) for i in range(6)]
    for i, (terminated, last) in enumerate([(False, False), (False, False), (False, False), (True, True)]):
        buffer.add(states[i], states[i], float(i + 1), states[i + 1], terminated, last)
    assert buffer.count == 4
    # rewards 1 2 3 4: windows (1,2,3) (2,3,4) (3,4) (4); the last three touch the end of the world
    np.testing.assert_allclose(buffer.rewards[:4], [1 + 1 + 0.75, 2 + 1.5 + 1, 3 + 2, 4])
    np.testing.assert_allclose(buffer.discounts[:4], [0.125, 0, 0, 0])
    np.testing.assert_allclose(buffer.nexts[:4, 0], [3, 4, 4, 4])
    buffer.add(states[4], states[4], 7.0, states[5], False, True)
    assert buffer.discounts[4] == 0.5  # a time-out bootstraps, from as far as it got


@pytest.mark.slow
def test_training_learns_stops_and_resumes(tmp_path):
    sac = SAC(width=64, updates_per_step=1.0, random_steps=1_000, batch=128)
    short = Training(
        "cartpole-balance", tmp_path, steps=2_000, goal=1e9, sac=sac, evaluate_every=1_000, episodes=2
    )
    train(short)
    before = NumpyActor.load(tmp_path / "trail" / "0002000.safetensors")
    best = train(
        Training(
            "cartpole-balance", tmp_path, steps=6_000, goal=1e9, sac=sac, evaluate_every=2_000, episodes=2
        )
    )
    steps = [json.loads(line)["step"] for line in (tmp_path / "curve.jsonl").read_text().splitlines()]
    assert steps == [1_000, 2_000, 4_000, 6_000]
    random = undiscounted_returns(
        ControlTask("cartpole-balance", pixels=None), Behaviour(None), [0, 1]
    ).mean()
    assert best > random + 100
    after = NumpyActor.load(tmp_path / "trail" / "0004000.safetensors")
    assert (after.tensors["mu.bias"] != before.tensors["mu.bias"]).any()
