"""The humanoid's harness holds it up and gives way; its mirror image obeys the same physics."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bcrl.errors import BadInput
from bcrl_bench.policies.episodes import Episodes
from bcrl_bench.policies.harness import LOWER, RAISE, moved_level
from bcrl_bench.policies.mirror import Mirror
from bcrl_bench.policies.replay import Buffer
from bcrl_bench.policies.sac import SAC
from bcrl_bench.policies.train import Session, Training, train
from bcrl_bench.tasks import ControlTask, flatten

HEAD = 21  # index of the head's height in the state


@pytest.fixture(scope="module")
def humanoid():
    return ControlTask("humanoid-stand", pixels=None)


def episodes(task, harness):
    help_ = {"assisted": 0.0, "assisted_steps": 60, "harness": harness}
    return Episodes(task, [], np.random.default_rng(0), **help_)


def test_a_limp_humanoid_hangs_in_the_harness_and_lies_without_it(humanoid):
    heights = []
    for level in (1.0, 0.0):
        one = episodes(humanoid, level)
        state, last = one.start_episode(), False
        for _ in range(60):
            state, _, _, last = one.step(np.zeros(humanoid.action_dim, np.float32))
        heights.append(state[HEAD])
        assert last == (level > 0.0)  # without a harness the task's own start has 500 steps
    assert heights[0] > 1.1 and heights[1] < 0.5


def test_the_level_falls_after_success_and_the_force_ends_with_the_episode(humanoid):
    assert moved_level(0.5, 1.0, 2.0) == pytest.approx(0.5 - LOWER)
    assert moved_level(0.5, 0.5, 2.0) == pytest.approx(0.5 + RAISE)
    assert moved_level(0.0, 2.0, 2.0) == 0.0 and moved_level(1.0, 0.0, 2.0) == 1.0
    one = episodes(humanoid, 1.0)
    one.start_episode()
    for _ in range(60):
        one.step(np.zeros(humanoid.action_dim, np.float32))
    force = humanoid.control.physics.data.xfrc_applied
    assert np.abs(force).max() > 1.0
    one.judge()
    assert one.level == 1.0 - LOWER
    one.start_episode()
    assert (force == 0.0).all()


@pytest.mark.parametrize("seed", [10_001, 10_002])
def test_the_mirror_of_a_step_is_the_step_of_the_mirror(humanoid, seed):
    """In the air: once limbs touch, the solver's order of contacts breaks the symmetry in the last digits,
    which grow.
    """
    mirror, physics = Mirror.of(humanoid), humanoid.control.physics
    actions = np.random.default_rng(seed).uniform(-1, 1, (3, humanoid.action_dim)).astype(np.float32)

    def states(position, velocity, actions):
        humanoid.reset(seed=1)
        with physics.reset_context():
            physics.data.qpos[:], physics.data.qvel[:] = position, velocity
        first = flatten(humanoid.control.task.get_observation(physics))
        steps = [humanoid.step(action)[:2] for action in actions]
        return np.stack([first, *(seen["state"] for seen, _ in steps)]), [reward for _, reward in steps]

    humanoid.reset(seed=seed)
    position, velocity = physics.data.qpos.copy(), physics.data.qvel.copy()
    joints, sign = mirror.state_from[:21].numpy(), mirror.state_sign[:21].numpy()
    w, x, y, z = position[3:7]
    other = np.concatenate([position[:3] * [1, -1, 1], [w, -x, y, -z], sign * position[7:][joints]])
    turned = np.concatenate(
        [velocity[:3] * [1, -1, 1], velocity[3:6] * [-1, 1, -1], sign * velocity[6:][joints]]
    )
    here, paid = states(position, velocity, actions)
    there, paid_there = states(other, turned, mirror.actions(torch.from_numpy(actions)).numpy())
    np.testing.assert_allclose(there, mirror.states(torch.from_numpy(here)).numpy(), atol=1e-4)
    np.testing.assert_allclose(paid, paid_there, atol=1e-6)
    np.testing.assert_array_equal(mirror.states(mirror.states(torch.from_numpy(here))).numpy(), here)


def test_half_of_a_batch_is_mirrored(humanoid):
    mirror = Mirror.of(humanoid)
    buffer = Buffer(1, humanoid.state_dim, humanoid.action_dim, 1, 0.9, mirror)
    state = np.arange(humanoid.state_dim, dtype=np.float32)
    action = np.arange(humanoid.action_dim, dtype=np.float32)
    buffer.add(state, action, 1.0, state + 1.0, False, True)
    states, actions, _, nexts, _ = buffer.sample(4, torch.Generator())
    for plain, seen, shown in ((state, states, mirror.states), (state + 1.0, nexts, mirror.states)):
        row = torch.from_numpy(plain)[None]
        assert torch.equal(seen, torch.cat([shown(row), shown(row), row, row]))
    row = torch.from_numpy(action)[None]
    assert torch.equal(actions, torch.cat([mirror.actions(row), mirror.actions(row), row, row]))


def test_a_training_goes_on_at_its_level(tmp_path):
    sac = SAC(width=16, random_steps=10, batch=8, buffer=100)
    training = Training(
        "humanoid-stand", tmp_path, steps=60, sac=sac, assisted_steps=5, evaluate_every=60, episodes=1
    )
    training = replace(training, harness=0.5, mirror=True)
    train(training)
    session = Session(training)
    session.resume(tmp_path / "learner.pt")
    assert session.episodes.level != 0.5


def test_other_bodies_are_refused(tmp_path):
    for help_, words in (
        ({"harness": 0.5}, "the harness fits the humanoid"),
        ({"mirror": True}, "mirroring knows"),
    ):
        with pytest.raises(BadInput, match=words):
            Session(Training("cheetah-run", tmp_path, sac=SAC(buffer=100), **help_))
