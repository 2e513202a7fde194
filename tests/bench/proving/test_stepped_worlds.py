"""Stepped worlds against plain loops over one environment, made by Gymnasium and by dm_control themselves."""

import gymnasium
import numpy as np
import pytest
from dm_control import suite

from bcrl_bench.policies.actor import NumpyActor
from bcrl_bench.proving.controllers import WEIGHTS
from bcrl_bench.proving.family import load_family
from bcrl_bench.proving.regimes import policy_of, supports
from bcrl_bench.proving.truth import returns
from bcrl_bench.proving.world import play, record

STEPS, COPIES, DISCOUNT = 30, 3, 0.9
# Family, environment, its own options, and half the width of its box of actions (0: numbered choices).
GYM = [
    ("pendulum", "Pendulum-v1", {}, 2.0),
    ("mountain_car", "MountainCarContinuous-v0", {}, 1.0),
    ("cartpole", "CartPole-v1", {}, 0.0),
    ("acrobot", "Acrobot-v1", {}, 0.0),
    ("lunar_lander", "LunarLander-v3", {}, 0.0),
    ("inverted_double_pendulum", "InvertedDoublePendulum-v5", {}, 1.0),
    ("reacher", "Reacher-v5", {}, 1.0),
    ("pusher", "Pusher-v5", {}, 2.0),
    ("ant", "Ant-v5", {"include_cfrc_ext_in_observation": False}, 1.0),
]
CONTROL = [
    ("walker_walk", "walker", "walk"),
    ("cartpole_swingup", "cartpole", "swingup"),
    ("reacher_easy", "reacher", "easy"),
    ("ball_in_cup", "ball_in_cup", "catch"),
    ("point_mass", "point_mass", "easy"),
]


def rewards_of(name: str) -> tuple[np.ndarray, list[int]]:
    """What the family's world gives to its medium policy, all copies stepped in turn; and their seeds."""
    world = load_family(name).make(0)
    rewards = np.zeros((COPIES, STEPS))

    def visit(step):
        rewards[step.alive, step.time] = step.rewards

    rng = np.random.default_rng(5)
    play(world, world.policies["medium"], world.start(COPIES, rng), STEPS, rng, visit=visit)
    return rewards, np.random.default_rng(5).integers(2**31, size=COPIES).tolist()


def plain_gym(env, policy, half_width, seed):
    seen, rewards = env.reset(seed=seed)[0], np.zeros(STEPS)
    for step in range(STEPS):
        action = policy.act(np.asarray(seen, dtype=np.float64)[None])[0]
        own = int(action) if half_width == 0.0 else (half_width * action).astype(np.float32)
        seen, rewards[step], terminated, _, _ = env.step(own)
        if terminated:
            break
    return rewards


@pytest.mark.parametrize(("name", "env_name", "options", "half_width"), GYM)
def test_gymnasium_worlds_give_what_one_plain_environment_gives(name, env_name, options, half_width):
    rewards, seeds = rewards_of(name)
    policy = load_family(name).make(0).policies["medium"]
    plain = np.stack(
        [plain_gym(gymnasium.make(env_name, **options), policy, half_width, seed) for seed in seeds]
    )
    np.testing.assert_allclose(rewards, plain, rtol=2e-3, atol=2e-3)
    ours, theirs = returns(rewards, DISCOUNT, None), plain @ DISCOUNT ** np.arange(STEPS)
    assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-3)
    assert np.ptp(rewards, axis=0).max() > 0.0 or name in ("cartpole", "acrobot")  # each has its own start


def plain_control(domain, task, policy, seed):
    env = suite.load(domain, task, task_kwargs={"random": seed})
    step, rewards = env.reset(), np.zeros(STEPS)
    for number in range(STEPS):
        seen = np.concatenate([np.ravel(part) for part in step.observation.values()]).astype(np.float32)
        action = policy.act(seen[None].astype(np.float64))[0]
        for _ in range(2):
            step = env.step(action)
            rewards[number] += step.reward
    return rewards


@pytest.mark.parametrize(("name", "domain", "task"), CONTROL)
def test_control_worlds_give_what_one_plain_environment_gives(name, domain, task):
    rewards, seeds = rewards_of(name)
    policy = load_family(name).make(0).policies["medium"]
    plain = np.stack([plain_control(domain, task, policy, seed) for seed in seeds])
    np.testing.assert_allclose(rewards, plain, rtol=2e-3, atol=2e-3)
    if name in ("walker_walk", "cartpole_swingup"):
        assert np.ptp(rewards, axis=0).max() > 0.0  # the others may earn nothing so early


def test_pendulum_pays_by_its_formula():
    world = load_family("pendulum").make(0)
    rng = np.random.default_rng(0)
    state = world.start(20, rng)
    seen, actions = world.observe(state), rng.uniform(-1.5, 1.5, (20, 1))
    rewards, _, ended = world.step(state, actions, rng)
    angle, torque = np.arctan2(seen[:, 1], seen[:, 0]), 2.0 * np.clip(actions[:, 0], -1.0, 1.0)
    formula = -(angle**2 + 0.1 * seen[:, 2] ** 2 + 0.001 * torque**2)
    np.testing.assert_allclose(rewards, formula, atol=1e-4)
    assert not ended.any()


def test_a_time_limit_is_no_end_and_a_fall_is():
    world = load_family("cartpole").make(0)
    lasted = {}
    for level in ("poor", "good"):
        steps = []
        rng = np.random.default_rng(0)
        play(world, world.policies[level], world.start(2, rng), 520, rng, visit=steps.append)
        lasted[level] = len(steps)
    assert lasted["good"] == 520  # Gymnasium's own limit is 500
    assert lasted["poor"] < 200


LEARNED = sorted(path.name for path in WEIGHTS.iterdir() if path.is_dir())


@pytest.mark.parametrize("name", LEARNED)
def test_learned_rungs_rise_by_what_their_files_say(name):
    files = [WEIGHTS / name / f"{level}.safetensors" for level in ("poor", "medium", "good")]
    earned = [float(NumpyActor.load(file).metadata["return_mean"]) for file in files]
    assert earned == sorted(earned)
    assert all(file.stat().st_size < 150_000 for file in files)


@pytest.mark.parametrize("name", ["mountain_car", "cartpole", "acrobot", "lunar_lander", "point_mass"])
def test_rungs_written_by_hand_rise(name):
    world, earned = load_family(name).make(0), []
    for level in ("poor", "medium", "good"):
        rewards, rng = np.zeros((8, 250)), np.random.default_rng(1)

        def visit(step, rewards=rewards):
            rewards[step.alive, step.time] = step.rewards

        play(world, world.policies[level], world.start(8, rng), 250, rng, visit=visit)
        earned.append(returns(rewards, 0.99, None).mean())
    assert earned == sorted(earned)


@pytest.mark.parametrize("name", [row[0] for row in (*GYM, *CONTROL)])
def test_every_policy_can_log_and_is_supported_by_its_own_noise(name):
    family = load_family(name)
    world = family.make(0)
    for rung in ("poor", "medium", "good", "other"):
        noisy = policy_of(family, world, f"noisy {rung}")
        log = record(world, noisy, 2, 4, np.random.default_rng(3))
        assert len(log) == 8 and log.log_prob is not None
        assert np.isfinite(log.observations["observation"]).all()
        seen = log.natural(log.observe(log.rows))
        greedy = world.policies[rung].act(seen)
        assert greedy.shape == log.actions.shape
        assert (world.num_actions is not None) or np.abs(greedy).max() <= 1.0
        assert supports(world, [noisy], seen, greedy).all()
