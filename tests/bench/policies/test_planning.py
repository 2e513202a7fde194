"""Planned demonstrations: they do in the task what the plan said, are kept, and reach the learner."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bcrl.cli import main
from bcrl.errors import BadInput
from bcrl_bench.policies.demonstrations import (
    load_demonstration,
    load_demonstrations,
    save_demonstrations,
)
from bcrl_bench.policies.planning import Planner, _exploded
from bcrl_bench.policies.replay import Beside, Buffer
from bcrl_bench.policies.sac import SAC, Learner
from bcrl_bench.policies.shaping import progress
from bcrl_bench.policies.train import Session, Training, train
from bcrl_bench.tasks import ControlTask

SMALL = Planner(steps=12, horizon=8, commit=4, every=2, samples=6, elites=2, rounds=2)
ON_ITS_BACK = 4  # seed of quadruped-walk


@pytest.fixture(scope="module")
def quadruped():
    return ControlTask("quadruped-walk", pixels=None)


@pytest.fixture(scope="module")
def shown(quadruped):
    return SMALL.demonstrate(quadruped, ON_ITS_BACK)


@pytest.mark.parametrize("name", ["quadruped-walk", "humanoid-stand"])
def test_the_task_does_what_the_plan_foresaw(name):
    world = ControlTask(name, pixels=None)
    made = SMALL.demonstrate(world, ON_ITS_BACK)
    physics = world.control.physics
    upright = 0.5 * (1 + physics.torso_upright())
    measure = upright if name == "quadruped-walk" else min(1.0, physics.head_height() / 1.4)
    assert made.progress == pytest.approx(measure, abs=1e-3)
    assert made.foreseen == pytest.approx(made.progress, abs=1e-9)
    assert made.states.shape == (13, world.state_dim) and made.actions.shape == (12, world.action_dim)
    assert np.abs(made.actions).max() <= 1.0
    world.reset(seed=ON_ITS_BACK)
    replayed = [world.step(action) for action in made.actions]
    np.testing.assert_array_equal(np.stack([step[0]["state"] for step in replayed]), made.states[1:])
    np.testing.assert_allclose([step[1] for step in replayed], made.rewards, rtol=1e-6)


@pytest.mark.slow
def test_rounds_of_search_beat_as_many_plans_drawn_at_once(quadruped):
    settings = {"steps": 24, "horizon": 24, "commit": 24}
    once = Planner(**settings, samples=160, elites=5, rounds=1)
    rounds = Planner(**settings, samples=16, elites=3, rounds=10)
    gained = [
        rounds.demonstrate(quadruped, seed).progress - once.demonstrate(quadruped, seed).progress
        for seed in (4, 5, 9)
    ]
    assert np.mean(gained) > 0.02


def test_an_exploded_rollout_is_told_by_its_clock():
    clock = np.arange(1.0, 6.0)
    paths = np.zeros((2, 5, 3))
    paths[0, :, 0], paths[1, :, 0] = clock, [1.0, 2.0, 0.0, 0.0, 0.0]
    assert _exploded(paths).tolist() == [False, True]


def test_planning_goes_on_after_a_stop(quadruped, tmp_path):
    def made(seeds):
        return list(save_demonstrations(quadruped, tmp_path, seeds, SMALL.demonstrate))

    whole = made(range(2))[1]
    (tmp_path / "00001.npz").rename(tmp_path / ".00001.npz.1.part")  # as if killed before the last moment
    (tmp_path / ".00001.npz.1.part").write_bytes(b"half a file")
    written = (tmp_path / "00000.npz").stat().st_mtime_ns
    again = made(range(2))[1]
    np.testing.assert_array_equal(again.states, whole.states)
    np.testing.assert_array_equal(again.actions, whole.actions)
    assert (tmp_path / "00000.npz").stat().st_mtime_ns == written
    assert sorted(path.name for path in tmp_path.glob("*.npz")) == ["00000.npz", "00001.npz"]
    assert len(load_demonstrations(tmp_path, quadruped.name)) == 2


def test_a_demonstration_is_rejoined_where_it_was(quadruped, shown):
    state = shown.rejoin(quadruped, 7)
    np.testing.assert_array_equal(state, shown.states[7])
    after, reward, *_ = quadruped.step(shown.actions[7])
    np.testing.assert_array_equal(after["state"], shown.states[8])
    assert reward == pytest.approx(float(shown.rewards[7]), rel=1e-6)
    with pytest.raises(BadInput, match="goes another way here"):
        replace(shown, seed=shown.seed + 1).rejoin(quadruped, 7)


def test_half_of_a_batch_is_shown():
    rewards = _beside().sample(9, torch.Generator().manual_seed(0))[2]
    assert rewards.tolist() == [1.0] * 5 + [-1.0] * 4


def _beside():
    """Own steps have state 0 and earn 1, shown ones state 1 and earn -1."""
    own, shown = (Buffer(50, 2, 1, n_step=1, discount=0.9) for _ in range(2))
    for step in range(50):
        for buffer, sign in ((own, 1.0), (shown, -1.0)):
            state = np.full(2, sign < 0, np.float32)
            buffer.add(state, np.full(1, -sign / 2, np.float32), sign, state, False, step == 49)
    return Beside(own, shown)


def test_a_training_learns_from_demonstrations(quadruped, shown, tmp_path):
    shown.save(tmp_path / "00004.npz")
    sac = SAC(batch=8, random_steps=0, n_step=3)
    settings = {"shaping": 3.0, "assisted": 1.0, "assisted_steps": 4, "demonstrations": tmp_path}
    session = Session(Training("quadruped-walk", tmp_path, sac=sac, **settings))
    assert isinstance(session.memory, Beside) and session.seen == 13
    rows = session.memory.shown
    assert rows.count == 12
    np.testing.assert_array_equal(rows.states.numpy(), shown.states[:-1])
    # the last row: one step, cut short by the demonstration's end and carried on by the critics
    ahead, behind = (progress("quadruped-walk", shown.states[i]) for i in (12, 11))
    felt = shown.rewards[11] + 3.0 * (sac.discount * ahead - behind)
    assert float(rows.rewards[11]) == pytest.approx(float(felt), rel=1e-5)
    assert float(rows.discounts[11]) == pytest.approx(sac.discount)
    for step in range(8):
        if step % 4 == 0:  # an assisted episode begins on the demonstration's way
            assert (shown.states[:-1] == session.state).all(1).any()
        session.advance(random=True)
    assert np.isfinite(session.learner.update(session.memory)["critic_loss"])


def test_the_actor_is_shown_the_demonstrations_rows(monkeypatch):
    seen = {}

    def imitate(self, states, shown, values):
        seen.update(states=states, shown=shown, values=values)
        return torch.zeros(())

    monkeypatch.setattr(Learner, "_imitate", imitate)
    Learner(SAC(batch=8, width=16), state_dim=2, action_dim=1).update(_beside())
    assert seen["states"].tolist() == [[1.0, 1.0]] * 4 and seen["shown"].tolist() == [[0.5]] * 4
    assert len(seen["values"]) == 8


def test_the_actor_imitates_what_the_critics_think_better_and_nothing_else():
    learner = Learner(SAC(batch=8, width=16), state_dim=3, action_dim=2)
    states, shown = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.full((4, 2), 0.9)
    values = learner.critics(states, shown).amin(0).detach()
    beaten = torch.tensor([1.0, -1.0, 1.0, -1.0])
    drawn = torch.cat([values + 1, values + beaten])  # the last four rows are the shown ones
    distance = (learner.actor(states) - 0.9).square().mean(-1)
    expected = drawn.abs().mean() * (distance[1] + distance[3]) / 4
    torch.testing.assert_close(learner._imitate(states, shown, drawn), expected)
    assert learner._imitate(states, shown, drawn + 9).detach() == 0.0


def test_a_training_goes_on_only_beside_the_same_demonstrations(shown, tmp_path):
    shown.save(tmp_path / "00004.npz")
    sac = SAC(batch=8, random_steps=4, width=16)
    training = Training("quadruped-walk", tmp_path / "run", steps=5, evaluate_every=5, episodes=1, sac=sac)
    train(replace(training, demonstrations=tmp_path))
    with pytest.raises(BadInput, match="learned beside 1 demonstrations, seeds 4 to 4; got 0"):
        train(replace(training, steps=6))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["cartpole-balance"], "planning knows quadruped and humanoid; got cartpole-balance"),
        (["quadruped-walk", "--count", "0"], "got --count 0"),
        (["quadruped-walk", "--first-seed", "-1"], "--first-seed -1"),
        (["quadruped-walk", "--steps", "0"], "steps=0"),
    ],
)
def test_bad_requests_get_one_line(given, said, tmp_path, capsys):
    assert main(["policy", "plan", *given, "--out", str(tmp_path / "plans")]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "plans").exists()


def test_bad_files_get_one_line(shown, tmp_path):
    with pytest.raises(BadInput, match="no demonstrations in"):
        load_demonstrations(tmp_path, "quadruped-walk")
    path = tmp_path / "00004.npz"
    shown.save(path)
    with pytest.raises(BadInput, match="a demonstration of quadruped-walk; expected quadruped-run"):
        load_demonstration(path, "quadruped-run")
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(BadInput, match=r"no \.npz file"):
        load_demonstrations(tmp_path, "quadruped-walk")
    np.savez(path, states=np.zeros(3))
    with pytest.raises(BadInput, match="is no demonstration: it has no actions"):
        load_demonstrations(tmp_path, "quadruped-walk")
    replace(shown, rewards=shown.rewards[:-1]).save(path)
    with pytest.raises(BadInput, match="expected one more state"):
        load_demonstrations(tmp_path, "quadruped-walk")


def test_plans_are_made_by_command(tmp_path, capsys):
    given = ["quadruped-walk", "--count", "1", "--steps", "4", "--out", str(tmp_path)]
    assert main(["policy", "plan", *given]) == 0
    assert "1 demonstrations" in capsys.readouterr().out
    assert load_demonstrations(tmp_path, "quadruped-walk")[0].seed == 10_000
