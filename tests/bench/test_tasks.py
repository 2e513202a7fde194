"""Tasks: exact seeds, summed repeats, terminal apart from time-out, lazy pixels."""

import numpy as np
import pytest

from bcrl.errors import BadInput
from bcrl_bench.tasks import ControlTask


def play(task, seed, steps=5):
    generator = np.random.default_rng(0)
    observation, _ = task.reset(seed=seed)
    seen, rewards = [observation], []
    for _ in range(steps):
        observation, reward, *_ = task.step(generator.uniform(-1, 1, task.action_dim))
        seen.append(observation)
        rewards.append(reward)
    return seen, rewards


@pytest.mark.parametrize("name", ["cheetah-run", "quadruped-walk", "finger-turn_hard"])
def test_same_seed_gives_the_same_frames_and_another_seed_does_not(name):
    one, two = ControlTask(name, pixels=24), ControlTask(name, pixels=24)
    play(two, seed=9)  # a used environment must not remember
    first, first_rewards = play(one, seed=3)
    again, again_rewards = play(two, seed=3)
    other, _ = play(one, seed=4)
    assert first_rewards == again_rewards
    for a, b in zip(first, again, strict=True):
        assert (a["pixels"] == b["pixels"]).all() and (a["state"] == b["state"]).all()
    assert (first[0]["state"] != other[0]["state"]).any()
    assert first[0]["pixels"].shape == (24, 24, 3) and first[0]["pixels"].std() > 1


def test_action_repeat_sums_rewards():
    twice, once = (
        ControlTask("walker-walk", pixels=None),
        ControlTask("walker-walk", pixels=None, action_repeat=1),
    )
    twice.reset(seed=1)
    once.reset(seed=1)
    action = np.full(6, 0.5)
    observation, reward, *_ = twice.step(action)
    first, one, *_ = once.step(action)
    second, two, *_ = once.step(action)
    assert reward == one + two and one > 0
    assert (observation["state"] == second["state"]).all() and (first["state"] != second["state"]).any()


def test_the_limit_truncates_and_never_terminates():
    task = ControlTask("cartpole-balance", pixels=None, limit=7)
    task.reset(seed=0)
    ends = [task.step(np.zeros(1))[2:4] for _ in range(7)]
    assert ends == [(False, False)] * 6 + [(False, True)]


def test_a_lifted_limit_passes_dm_controls_own_clock():
    task = ControlTask("cartpole-balance", pixels=None, limit=None)
    task.reset(seed=0)
    assert not any(any(task.step(np.zeros(1))[2:4]) for _ in range(600))


def test_discount_zero_terminates_inside_the_repeat(monkeypatch):
    task = ControlTask("cartpole-balance", pixels=None)
    task.reset(seed=0)
    calls = iter([None, None, 0.0])  # the first of the second agent step's two control steps ends the world
    monkeypatch.setattr(task.control.task, "get_termination", lambda physics: next(calls))
    assert task.step(np.zeros(1))[2:4] == (False, False)
    _, reward, terminated, truncated, _ = task.step(np.zeros(1))
    assert (terminated, truncated) == (True, False)
    assert reward <= 1.0  # one control step's reward, not two


def test_discount_one_at_an_end_is_a_truncation(monkeypatch):
    task = ControlTask("cartpole-balance", pixels=None)
    task.reset(seed=0)
    monkeypatch.setattr(task.control.task, "get_termination", lambda physics: 1.0)
    assert task.step(np.zeros(1))[2:4] == (False, True)


def test_a_real_terminating_task_terminates():
    task = ControlTask("lqr-lqr_2_1", pixels=None, limit=None)
    task.reset(seed=0)
    task.control.physics.data.qpos[:] = 0
    task.control.physics.data.qvel[:] = 0
    task.control.physics.forward()
    assert task.step(np.zeros(1))[2:4] == (True, False)


def test_fast_and_faithful_rendering_show_the_same_scene_differently():
    fast, faithful = (ControlTask("cheetah-run", pixels=48, rendering=mode) for mode in ("fast", "faithful"))
    one, two = (task.reset(seed=0)[0]["pixels"].astype(float) for task in (fast, faithful))
    assert (one != two).any()
    assert np.corrcoef(one.ravel(), two.ravel())[0, 1] > 0.8


def test_state_only_tasks_make_no_renderer():
    task = ControlTask("cheetah-run", pixels=None)
    observation, _ = task.reset(seed=0)
    assert set(observation) == {"state"}
    with pytest.raises(BadInput, match="pixels=84"):
        task.render()


def test_unknown_task_says_what_exists():
    with pytest.raises(BadInput, match="cheetah-run"):
        ControlTask("cheetah-runn")
