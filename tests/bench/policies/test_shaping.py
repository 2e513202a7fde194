"""Potential shaping adds nothing but a difference of potentials, and reads what the physics says."""

import numpy as np
import pytest

from bcrl.errors import BadInput
from bcrl_bench.policies.shaping import progress, shaped
from bcrl_bench.policies.starts import assisted_reset, fallen
from bcrl_bench.rollouts import Behaviour, run_episode
from bcrl_bench.tasks import ControlTask


@pytest.mark.parametrize("name", ["finger-turn_hard", "humanoid-stand", "quadruped-walk"])
def test_an_episode_gains_only_the_difference_of_its_ends(name):
    task = ControlTask(name, pixels=None, limit=20)
    episode = run_episode(task, Behaviour(None), (0,))
    states, rewards = episode.observations["state"], episode.rewards
    felt = [
        shaped(name, 50.0, 0.99, (states[t], float(rewards[t]), states[t + 1]), False)
        for t in range(len(rewards))
    ]
    weights = 0.99 ** np.arange(len(rewards))
    gain = float(weights @ (np.array(felt) - rewards))
    ends = 0.99 ** len(rewards) * progress(name, states[-1]) - progress(name, states[0])
    assert gain == pytest.approx(50.0 * ends, abs=1e-6) and abs(ends) > 1e-6
    assert shaped(name, 0.0, 0.99, (states[0], 1.5, states[1]), False) == 1.5
    assert shaped(name, 50.0, 0.99, (states[0], 1.5, states[1]), True) == pytest.approx(
        1.5 - 50.0 * progress(name, states[0])
    )


def test_progress_is_read_from_the_right_place():
    for name, truth in (
        ("humanoid-stand", lambda physics: np.clip(physics.head_height() / 1.4, 0, 1)),
        ("quadruped-walk", lambda physics: 0.5 * (1 + physics.torso_upright())),
        ("finger-turn_hard", lambda physics: 1 - np.clip(physics.dist_to_target() / 0.4, 0, 1)),
    ):
        task = ControlTask(name, pixels=None)
        found = []
        for seed in range(4):
            task.reset(seed=seed)
            for _ in range(15 * (seed + 1)):  # the humanoid begins in the air and falls
                state = task.step(np.zeros(task.action_dim))[0]["state"]
            found.append(progress(name, state))
            assert found[-1] == pytest.approx(float(np.squeeze(truth(task.control.physics))), abs=1e-5)
        assert np.ptp(found) > 0.0


def test_an_assisted_humanoid_begins_standing_and_its_episode_ends_when_it_lies():
    task = ControlTask("humanoid-stand", pixels=None)
    assisted_reset(task, np.random.default_rng(0))
    assert not fallen(task) and task.control.physics.head_height() > 1.4
    heights = []
    while not fallen(task) and len(heights) < 200:
        task.step(np.zeros(task.action_dim))
        heights.append(float(task.control.physics.head_height()))
    assert 5 < len(heights) < 200 and heights[-1] < 0.6
    assert not fallen(ControlTask("finger-turn_hard", pixels=None))


def test_other_tasks_say_so():
    for name in ("cheetah-run", "finger-spin", "humanoid-run_pure_state"):
        with pytest.raises(BadInput, match=f"shaping knows finger-turn, humanoid and quadruped; got {name}"):
            progress(name, np.zeros(60))
