"""Planned demonstrations: they do in the task what the plan said, are kept, and reach the learner."""

import numpy as np
import pytest
import torch

from bcrl.benchmark.policies.planning import Planner, load_demonstration, rejoin, save_demonstrations
from bcrl.benchmark.policies.sac import SAC, Beside, Buffer, Learner
from bcrl.benchmark.policies.shaping import progress
from bcrl.benchmark.policies.train import Session, Training
from bcrl.benchmark.tasks import ControlTask
from bcrl.errors import BadInput

SMALL = Planner(steps=12, horizon=12, commit=12, samples=6, elites=2, rounds=2)


@pytest.mark.parametrize("name", ["quadruped-walk", "humanoid-stand"])
def test_the_task_does_what_the_plan_foresaw(name):
    world = ControlTask(name, pixels=None)
    shown = SMALL.demonstrate(world, seed=3)
    physics = world.control.physics
    upright = 0.5 * (1 + physics.torso_upright())
    measure = upright if name == "quadruped-walk" else min(1.0, physics.head_height() / 1.4)
    assert float(shown["progress"]) == pytest.approx(measure, abs=1e-3)
    assert shown["foreseen"] == pytest.approx(shown["progress"], abs=1e-6)
    assert shown["states"].shape == (13, world.state_dim) and shown["actions"].shape == (12, world.action_dim)
    world.reset(seed=3)
    replayed = [world.step(action) for action in shown["actions"]]
    np.testing.assert_array_equal(
        np.stack([step[0]["state"] for step in replayed]).astype(np.float32), shown["states"][1:]
    )
    np.testing.assert_allclose([step[1] for step in replayed], shown["rewards"], rtol=1e-6)


def test_search_gets_farther_than_its_first_guess():
    world = ControlTask("quadruped-walk", pixels=None)
    settings = {"steps": 24, "horizon": 24, "commit": 24, "samples": 16, "elites": 3}
    tries = [
        [float(Planner(**settings, rounds=rounds).demonstrate(world, seed)["progress"]) for seed in (4, 5)]
        for rounds in (1, 8)
    ]
    assert np.mean(tries[1]) > np.mean(tries[0]) + 0.05


def test_planning_goes_on_after_a_stop(tmp_path):
    first = save_demonstrations("quadruped-walk", tmp_path, range(2), SMALL)
    written = (tmp_path / "00000.npz").stat().st_mtime_ns
    again = save_demonstrations("quadruped-walk", tmp_path, range(3), SMALL)
    assert again[:2] == first and len(again) == 3
    assert (tmp_path / "00000.npz").stat().st_mtime_ns == written
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000.npz", "00001.npz", "00002.npz"]


def test_a_demonstration_is_rejoined_where_it_was():
    world = ControlTask("quadruped-walk", pixels=None)
    shown = SMALL.demonstrate(world, seed=3)
    state = rejoin(world, shown, 7)
    np.testing.assert_array_equal(state, shown["states"][7])
    after, reward, *_ = world.step(shown["actions"][7])
    np.testing.assert_array_equal(after["state"], shown["states"][8])
    assert reward == pytest.approx(float(shown["rewards"][7]), rel=1e-6)


def test_half_of_a_batch_is_shown():
    own, shown = (Buffer(50, 2, 1, n_step=1, discount=0.9) for _ in range(2))
    for step in range(50):
        for buffer, reward in ((own, 1.0), (shown, -1.0)):
            buffer.add(
                np.zeros(2, np.float32), np.zeros(1, np.float32), reward, np.zeros(2), False, step == 49
            )
    rewards = Beside(own, shown).sample(9, torch.Generator().manual_seed(0))[2]
    assert rewards.tolist() == [1.0] * 5 + [-1.0] * 4


def test_a_training_learns_from_demonstrations(tmp_path):
    save_demonstrations("quadruped-walk", tmp_path, range(2), SMALL)
    sac = SAC(batch=8, random_steps=0, n_step=1)
    settings = {"shaping": 3.0, "assisted": 1.0, "assisted_steps": 4, "demonstrations": tmp_path}
    session = Session(Training("quadruped-walk", tmp_path, sac=sac, **settings))
    assert isinstance(session.memory, Beside)
    shown, kept = session.memory.shown, load_demonstration(tmp_path / "00001.npz")
    assert shown.count == 24
    np.testing.assert_array_equal(shown.states[12:].numpy(), kept["states"][:-1])
    ahead, behind = (progress("quadruped-walk", kept["states"][i]) for i in (1, 0))
    felt = kept["rewards"][0] + 3.0 * (sac.discount * ahead - behind)
    assert float(shown.rewards[12]) == pytest.approx(float(felt), rel=1e-5)
    assert (shown.discounts > 0).all()  # a plan's end is not the world's
    starts = [one["states"][:-1] for one in session.shown]
    for step in range(8):
        if step % 4 == 0:  # an assisted episode begins on a demonstration's way
            assert (np.concatenate(starts) == session.state).all(1).any()
        session.advance(random=True)
    assert np.isfinite(session.learner.update(session.memory)["critic_loss"])


def test_what_cannot_be_planned_says_so(tmp_path):
    with pytest.raises(BadInput, match="planning knows quadruped and humanoid; got cartpole-balance"):
        save_demonstrations("cartpole-balance", tmp_path, range(1), SMALL)
    with pytest.raises(BadInput, match="no demonstrations"):
        Session(Training("quadruped-walk", tmp_path, demonstrations=tmp_path))


def test_the_actor_imitates_what_the_critics_think_better_and_nothing_else():
    learner = Learner(SAC(batch=8, width=16), state_dim=3, action_dim=2)
    states, shown = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.full((4, 2), 0.9)
    values = learner.critics(states, shown).amin(0).detach()
    beaten = torch.tensor([1.0, -1.0, 1.0, -1.0])
    drawn = torch.cat([values + 1, values + beaten])  # the last four rows are the shown ones
    distance = (torch.tanh(learner.actor(states)[0]) - 0.9).square().mean(-1)
    expected = drawn.abs().mean() * (distance[1] + distance[3]) / 4
    torch.testing.assert_close(learner._imitate(states, shown, drawn), expected)
    assert learner._imitate(states, shown, drawn + 9).detach() == 0.0
