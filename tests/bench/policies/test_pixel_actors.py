"""Actors from pixels: the replay of single frames, the crop, DrQ-v2's step, distillation, and the commands
that call them.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bcrl.cli import main
from bcrl.errors import BadInput
from bcrl.policies.load import load_policy
from bcrl_bench.policies.actor import NumpyActor
from bcrl_bench.policies.distil import Distillation, Student, distil_actor
from bcrl_bench.policies.drqv2 import Agent, DrQv2, random_shift, train_from_pixels
from bcrl_bench.policies.frames import Batch, FrameBuffer
from bcrl_bench.policies.hindsight import DISTANCE, TARGET, TIP, relabel
from bcrl_bench.policies.shipped import shipped_actor
from bcrl_bench.rollouts import Behaviour, run_episode, undiscounted_returns
from bcrl_bench.tasks import ControlTask


def frame(number):
    return np.full((2, 2, 1), number, np.uint8)


def filled(size, episodes, terminated=False):
    """Episodes of these lengths; frame k of the whole record shows k, its action pays k."""
    buffer = FrameBuffer(size, (2, 2, 1), 1, stack=3, n_step=3, discount=0.5)
    number = 0
    for length in episodes:
        buffer.start_episode(frame(number))
        for step in range(length):
            last = step == length - 1
            buffer.add(
                np.array([number]),
                float(number),
                frame(number + 1),
                terminated=terminated and last,
                last=last,
            )
            number += 1
        number += 1
    return buffer


@pytest.mark.parametrize(("size", "terminated"), [(100, False), (100, True), (13, False)])
def test_frames_become_stacks_and_n_step_returns(size, terminated):
    episodes = [5, 4, 6]
    buffer = filled(size, episodes, terminated)
    ends = np.cumsum([length + 1 for length in episodes]) - 1
    starts = ends - episodes
    batch = buffer.sample(64, np.random.default_rng(0))
    seen = set()
    for i in range(64):
        row = int(batch.actions[i, 0])
        seen.add(row)
        episode = int(np.searchsorted(ends, row))
        steps = min(3, ends[episode] - row)
        oldest = max(starts[episode], buffer.count - size)
        assert row not in ends
        assert batch.pixels[i, 0, 0].tolist() == [max(oldest, row - 2), max(oldest, row - 1), row]
        assert batch.nexts[i, 0, 0, 2] == row + steps
        assert batch.rewards[i] == sum(0.5**k * (row + k) for k in range(steps))
        assert batch.discounts[i] == (0.0 if terminated and row + steps in ends else 0.5**steps)
    assert len(seen) >= 9


def test_random_shift_is_an_exact_crop_of_the_padded_image():
    pixels = torch.randint(255, (6, 8, 8, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    moved = random_shift(pixels, 2, torch.Generator().manual_seed(1))
    padded = torch.nn.functional.pad(pixels.permute(0, 3, 1, 2).float(), (2, 2, 2, 2), mode="replicate")
    for image, wide in zip(moved, padded, strict=True):
        crops = [wide[:, y : y + 8, x : x + 8] for y in range(5) for x in range(5)]
        assert sum(bool((image == crop).all()) for crop in crops) == 1
    assert not torch.equal(moved, pixels.permute(0, 3, 1, 2).float())


def tiny():
    sizes = {"pixels": 20, "hidden": 32, "channels": 8, "conv_layers": 2, "batch": 16}
    return DrQv2(**sizes, random_steps=50, buffer=2_000, evaluate_every=100, episodes=2)


def test_the_critic_learns_terminal_rewards_and_the_actor_leaves_the_encoder_alone():
    agent = Agent(tiny(), 1)
    pixels = torch.randint(
        255, (32, 20, 20, 9), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    batch = Batch(pixels, torch.rand(32, 1), torch.full((32,), 3.0), pixels, torch.zeros(32))
    losses = [agent.update(batch, 0.1)["critic_loss"] for _ in range(100)]
    assert losses[-1] < 0.5 * losses[0]
    before = [parameter.clone() for parameter in agent.actor.encoder.parameters()]
    held = agent.encode(random_shift(pixels, 2, agent.generator)).detach()
    agent.actor_step.zero_grad()
    (-agent.critic(held, agent.noisy(held, 0.1)).amin(0).mean()).backward()
    agent.actor_step.step()
    assert all(torch.equal(a, b) for a, b in zip(before, agent.actor.encoder.parameters(), strict=True))


@pytest.mark.slow
def test_drqv2_trains_stops_resumes_and_its_actor_loads(tmp_path):
    train_from_pixels(tiny(), "cartpole-balance", tmp_path, steps=100, goal=1e9)
    train_from_pixels(tiny(), "cartpole-balance", tmp_path, steps=200, goal=1e9)
    with pytest.raises(BadInput, match="begun with other settings"):
        train_from_pixels(
            replace(tiny(), reward_scale=0.5), "cartpole-balance", tmp_path, steps=300, goal=1e9
        )
    steps = [json.loads(line)["step"] for line in (tmp_path / "curve.jsonl").read_text().splitlines()]
    assert steps == [100, 200]
    policy = load_policy(tmp_path / "trail" / "0000200.safetensors")
    task = ControlTask("cartpole-balance", pixels=20, limit=20)
    assert policy.reads == "pixels" and policy.stack == 3
    assert 0 < undiscounted_returns(task, Behaviour(policy, noise=0.0), [0])[0] <= 40


@pytest.mark.slow
def test_distillation_brings_the_student_close_to_the_teacher(tmp_path):
    teacher = shipped_actor("cartpole-swingup", "100")
    recipe = Distillation(pixels=24, rounds=2, episodes=1, epochs=2, channels=8, hidden=32, batch=50)
    losses = []
    distil_actor(
        recipe,
        "cartpole-swingup",
        teacher,
        tmp_path / "a.safetensors",
        lambda news: losses.append(news.get("loss")),
        seeds=2,
    )
    numbers = [loss for loss in losses if loss is not None]
    assert (
        numbers[1] < numbers[0] and numbers[3] < numbers[2]
    )  # within each round; a new round brings new states
    policy = load_policy(tmp_path / "a.safetensors")
    episode = run_episode(
        ControlTask("cartpole-swingup", pixels=24, limit=5), Behaviour(policy, noise=0.0), (0,)
    )
    again = run_episode(
        ControlTask("cartpole-swingup", pixels=24, limit=5),
        Behaviour(Student(policy.respond.network, 3), noise=0.0),
        (0,),
    )
    np.testing.assert_array_equal(episode.actions, again.actions)


@pytest.mark.slow
def test_a_stopped_distillation_goes_on_to_the_same_actor(tmp_path):
    teacher = shipped_actor("cartpole-swingup", "100")
    recipe = Distillation(pixels=24, rounds=2, episodes=1, epochs=1, channels=8, hidden=32, batch=50)

    class Stop(Exception):
        pass

    def stop(news):
        if news["stage"] == "distilling" and news["step"] == 2:
            raise Stop

    whole, stopped = tmp_path / "whole.safetensors", tmp_path / "stopped.safetensors"
    distil_actor(recipe, "cartpole-swingup", teacher, whole, seeds=1)
    with pytest.raises(Stop):
        distil_actor(recipe, "cartpole-swingup", teacher, stopped, stop, seeds=1)
    with pytest.raises(BadInput, match="other settings"):
        distil_actor(replace(recipe, noise=0.5), "cartpole-swingup", teacher, stopped, seeds=1)
    distil_actor(recipe, "cartpole-swingup", teacher, stopped, seeds=1)
    one, two = load_file(whole), load_file(stopped)
    assert all(torch.equal(one[name], two[name]) for name in one) and one.keys() == two.keys()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stopped.safetensors", "whole.safetensors"]


def test_hindsight_moves_the_target_onto_the_spinners_path():
    task = ControlTask("finger-turn_hard", pixels=None, limit=300)
    episodes = [run_episode(task, Behaviour(None), (seed,)).observations["state"] for seed in range(6)]
    still = np.repeat(episodes[0][:1], 5, axis=0)
    assert relabel("finger-turn_hard", still, np.random.default_rng(0)) is None
    copies = [(states, relabel("finger-turn_hard", states, np.random.default_rng(0))) for states in episodes]
    states, (moved, rewards) = next((states, copy) for states, copy in copies if copy is not None)
    assert rewards.max() == 2.0 and set(rewards) <= {0.0, 2.0}
    np.testing.assert_array_equal(moved[:, :9], states[:, :9])
    gap = np.linalg.norm(moved[:, TARGET] - moved[:, TIP], axis=1) - moved[:, DISTANCE]
    np.testing.assert_allclose(gap, 0.03, atol=1e-5)  # the target's radius, as in the task itself


def test_commands_train_evaluate_and_collect(tmp_path, capsys):
    assert main(["policy", "evaluate", "cartpole-swingup", "025", "--episodes", "2", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    recorded = json.loads(shipped_actor("cartpole-swingup", "025").metadata["returns"])
    np.testing.assert_allclose(answer["returns"], recorded[:2], rtol=1e-5)
    trained = [
        "policy",
        "train",
        "cartpole-balance",
        "--out",
        str(tmp_path / "run"),
        "--steps",
        "100",
        "--evaluate-every",
        "100",
    ]
    assert main([*trained, "--episodes", "2"]) == 0
    assert NumpyActor.load(tmp_path / "run" / "trail" / "0000100.safetensors").task == "cartpole-balance"
    out = str(tmp_path / "logs")
    words = [
        "collect",
        "cartpole-swingup",
        "--out",
        out,
        "--policy",
        "025",
        "random",
        "--episodes",
        "2",
        "--processes",
        "1",
    ]
    assert main([*words, "--pixels", "None"]) == 0
    assert "2 episodes, 1000 transitions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["policy", "evaluate", "cartpole-swingup", "099"], "025"),
        (["policy", "evaluat", "x"], "evaluate"),
        (["collect", "cheetah-run", "--out", "x", "--policy", "025", "--share", "1", "2"], "share"),
        (["collect", "cheetah-rum", "--out", "x", "--policy", "random"], "cheetah-run"),
    ],
)
def test_mistakes_are_told_in_one_line(words, said, capsys):
    assert main(words) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len([line for line in told if not line.startswith("WARNING")]) == 1 and said in told[-1]
