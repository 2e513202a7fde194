"""Stable-Baselines3 models trained by SB3's own loop: what they would do is what is evaluated."""

import warnings
from copy import deepcopy
from hashlib import sha256

import gymnasium as gym
import numpy as np
import pytest
import sb3_contrib
import stable_baselines3 as sb3
import torch
from gymnasium import spaces
from policies.small_data import dataset
from scipy import stats
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from bcrl.cli import main
from bcrl.errors import BadInput
from bcrl.policies import load_policy
from bcrl.policies.kinds import Deterministic, Discrete, Stochastic
from bcrl.policies.policy import target_actions

SMALL = {"policy_kwargs": {"net_arch": [16, 16]}, "seed": 0, "device": "cpu"}
ON_POLICY = {"n_steps": 64, **SMALL}
OFF_POLICY = {"learning_starts": 120, "buffer_size": 500, "batch_size": 16, **SMALL}


class World(gym.Env):
    """Noise to look at and any action space: training moves the weights, which is all that is asked of it."""

    def __init__(self, action_space, observation_space=None):
        self.action_space = action_space
        self.observation_space = observation_space or spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_count = 0
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        self.step_count += 1
        return self.observation_space.sample(), float(np.sum(action)), False, self.step_count >= 20, {}


BOX = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([3.0, 1.0], np.float32))
THREE = spaces.Discrete(3)
STATES = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)


def train(algorithm, env, policy="MlpPolicy", steps=200, **arguments):
    # SB3 writes into the arguments that it is given
    with warnings.catch_warnings():
        # boxes other than [-1, 1] and rollouts that batches do not divide: advice that does not matter here
        warnings.simplefilter("ignore", UserWarning)
        return algorithm(policy, env, **deepcopy(arguments)).learn(steps)


def save(model, path):
    model.save(path)
    return path


@pytest.fixture(scope="module")
def models():
    """One trained model of each algorithm, made when first asked for."""
    made = {}
    recipes = {
        "SAC": (sb3.SAC, BOX, OFF_POLICY),
        "TD3": (sb3.TD3, BOX, OFF_POLICY),
        "DDPG": (sb3.DDPG, BOX, OFF_POLICY),
        "PPO": (sb3.PPO, BOX, ON_POLICY | {"batch_size": 32}),
        "A2C": (sb3.A2C, BOX, SMALL),
        "TQC": (sb3_contrib.TQC, BOX, OFF_POLICY),
        "CrossQ": (sb3_contrib.CrossQ, BOX, OFF_POLICY),
        "TRPO": (sb3_contrib.TRPO, BOX, ON_POLICY | {"batch_size": 32}),
        "ARS": (sb3_contrib.ARS, BOX, SMALL),
        "PPO-discrete": (sb3.PPO, THREE, ON_POLICY | {"batch_size": 32}),
        "A2C-discrete": (sb3.A2C, THREE, SMALL),
        "DQN": (sb3.DQN, THREE, OFF_POLICY | {"exploration_final_eps": 0.1}),
        "QRDQN": (sb3_contrib.QRDQN, THREE, OFF_POLICY | {"exploration_final_eps": 0.1}),
    }

    def get(name):
        if name not in made:
            algorithm, actions, arguments = recipes[name]
            made[name] = train(algorithm, World(actions), **arguments)
        return made[name]

    return get


CONTINUOUS = ("SAC", "TD3", "DDPG", "PPO", "A2C", "TQC", "CrossQ", "TRPO", "ARS")
DISCRETE = ("PPO-discrete", "A2C-discrete", "DQN", "QRDQN")


@pytest.mark.parametrize("name", CONTINUOUS + DISCRETE)
def test_zip_and_live_model_act_as_predict_does(models, tmp_path, name):
    model = models(name)
    path = save(model, tmp_path / "model.zip")
    torch.manual_seed(5)
    before = torch.get_rng_state()
    policy = load_policy(path, trust=True)
    assert torch.equal(torch.get_rng_state(), before)
    expected, _ = model.predict(STATES, deterministic=True)
    assert isinstance(policy, Deterministic)
    np.testing.assert_array_equal(policy.act(STATES), expected)
    np.testing.assert_array_equal(load_policy(model).act(STATES), expected)
    assert policy.path == path and policy.digest == sha256(path.read_bytes()).hexdigest()


def test_trust_is_needed(models, tmp_path):
    path = save(models("PPO"), tmp_path / "model.zip")
    with pytest.raises(
        BadInput, match=r"model.zip can run code when loaded .*; if you trust its author pass trust=True"
    ):
        load_policy(path)


@pytest.mark.parametrize("name", ["PPO-discrete", "A2C-discrete"])
def test_discrete_actors_give_their_exact_probabilities(models, tmp_path, name):
    model = models(name)
    policy = load_policy(save(model, tmp_path / "model.zip"), trust=True, stochastic=True, num_actions=3)
    with torch.no_grad():
        expected = model.policy.get_distribution(torch.as_tensor(STATES)).distribution.probs.numpy()
    assert isinstance(policy, Discrete)
    np.testing.assert_allclose(policy.probabilities(STATES), expected, rtol=1e-6)
    assert expected.max() < 0.99, "a greedy policy would not tell the two apart"


@pytest.mark.parametrize("name", ["DQN", "QRDQN"])
def test_epsilon_greedy_is_evaluated_as_such(models, tmp_path, name):
    """SCOPE-RL evaluated epsilon-greedy heads as greedy ones; greedy here is a choice of the caller."""
    model = models(name)
    policy = load_policy(save(model, tmp_path / "model.zip"), trust=True, stochastic=True)
    greedy, _ = model.predict(STATES, deterministic=True)
    epsilon = model.exploration_rate
    assert epsilon == 0.1
    np.testing.assert_allclose(policy.probabilities(STATES), (1 - epsilon) * np.eye(3)[greedy] + epsilon / 3)
    found = target_actions(dataset(num_actions=3), policy)
    assert found.weights.shape == (14, 3)


@pytest.mark.parametrize("name", ["SAC", "TQC", "CrossQ"])
def test_squashed_actors_draw_and_weigh_in_the_environments_unit(models, tmp_path, name):
    model = models(name)
    policy = load_policy(save(model, tmp_path / "model.zip"), trust=True, stochastic=True)
    assert isinstance(policy, Stochastic)
    states = np.repeat(STATES[:1], 3000, axis=0)
    actions = policy.sample(states, np.random.default_rng(0))
    mean, log_std, _ = model.actor.get_action_dist_params(torch.as_tensor(states[:1]))
    mean, std = mean.detach().numpy()[0].astype(float), log_std.exp().detach().numpy()[0].astype(float)
    half = (BOX.high - BOX.low) / 2
    inner = (actions.astype(float) - BOX.low) / half - 1.0
    latent = np.arctanh(np.clip(inner, -0.99999, 0.99999))
    np.testing.assert_allclose(np.median(latent, axis=0), mean, atol=6 * std.max() / 3000**0.5)
    calm = np.abs(inner).max(axis=1) < 0.99
    jacobian = np.log1p(-(inner**2)) + np.log(half)
    expected = (stats.norm.logpdf(latent, mean, std) - jacobian).sum(axis=1)
    np.testing.assert_allclose(policy.log_prob(states, actions)[calm], expected[calm], atol=5e-3)
    assert np.isfinite(policy.log_prob(states[:2], np.stack([BOX.low, BOX.high]))).all()


@pytest.mark.parametrize("name", ["PPO", "A2C", "TRPO"])
def test_gaussian_actors_draw_and_clip_as_predict_does(models, name):
    model = models(name)
    policy = load_policy(model, stochastic=True)
    states = np.repeat(STATES[:1], 4000, axis=0)
    actions = policy.sample(states, np.random.default_rng(0))
    assert (actions >= BOX.low).all() and (actions <= BOX.high).all()
    theirs = np.concatenate([model.predict(states, deterministic=False)[0]])
    np.testing.assert_allclose(actions.mean(axis=0), theirs.mean(axis=0), atol=0.1)
    np.testing.assert_allclose(actions.std(axis=0), theirs.std(axis=0), atol=0.1)
    with torch.no_grad():
        normal = model.policy.get_distribution(torch.as_tensor(states[:1])).distribution
    mean, std = normal.mean.numpy()[0], normal.stddev.numpy()[0]
    inside = np.array([[0.5, 0.5]])
    np.testing.assert_allclose(
        policy.log_prob(states[:1], inside), stats.norm.logpdf(inside, mean, std).sum(axis=1), rtol=1e-5
    )
    edge = stats.norm.logpdf(0.5, mean[0], std[0]) + stats.norm.logsf(1.0, mean[1], std[1])
    np.testing.assert_allclose(policy.log_prob(states[:1], np.array([[0.5, 1.0]])), edge, rtol=1e-4)


def test_draws_depend_on_the_generator_alone(models):
    for name in ("SAC", "PPO"):
        policy = load_policy(models(name), stochastic=True)
        torch.manual_seed(1)
        first = policy.sample(STATES, np.random.default_rng(3))
        torch.manual_seed(2)
        np.testing.assert_array_equal(policy.sample(STATES, np.random.default_rng(3)), first)
        assert not np.array_equal(policy.sample(STATES, np.random.default_rng(4)), first)


def test_noise_on_a_deterministic_actor(models):
    model = models("TD3")
    policy = load_policy(model, noise=0.05)
    actions = policy.sample(STATES, np.random.default_rng(0))
    centre, _ = model.predict(STATES, deterministic=True)
    assert not np.array_equal(actions, centre)
    np.testing.assert_allclose(actions, centre, atol=0.25)
    assert (actions >= BOX.low).all() and (actions <= BOX.high).all()


def test_vec_normalize_is_applied(tmp_path):
    """d3rlpy's FQE bypassed the policy's own scalers; here the policy sees what it was trained on."""
    env = VecNormalize(DummyVecEnv([lambda: World(BOX, spaces.Box(-5.0, 50.0, (3,), np.float32))]))
    model = train(sb3.SAC, env, **OFF_POLICY)
    path = save(model, tmp_path / "model.zip")
    env.save(tmp_path / "stats.pkl")
    observations = np.random.default_rng(0).uniform(-5, 50, size=(30, 3)).astype(np.float32)
    expected, _ = model.predict(env.normalize_obs(observations), deterministic=True)
    bare, _ = model.predict(observations, deterministic=True)
    assert not np.allclose(expected, bare, atol=1e-3)
    policy = load_policy(path, trust=True, stats=tmp_path / "stats.pkl")
    np.testing.assert_array_equal(policy.act(observations), expected)
    np.testing.assert_array_equal(load_policy(model, stats=env).act(observations), expected)
    assert policy.stats_path == tmp_path / "stats.pkl"
    assert policy.stats_digest == sha256((tmp_path / "stats.pkl").read_bytes()).hexdigest()
    rows = {"observations": observations, "actions": expected}
    ends = np.arange(30) % 10 == 9
    np.savez(tmp_path / "logs.npz", **rows, rewards=np.arange(30.0), terminated=ends)
    words = ["doctor", str(tmp_path / "logs.npz"), "--policy", str(path), "--trust"]
    assert main([*words, "--stats", str(tmp_path / "stats.pkl")]) == 0
    with pytest.raises(BadInput, match=r"stats.pkl can run code when loaded"):
        load_policy(model, stats=tmp_path / "stats.pkl")


def test_vec_normalize_of_a_dict_leaves_other_keys_alone(tmp_path):
    space = spaces.Dict(
        {"speed": spaces.Box(-9.0, 30.0, (2,), np.float32), "flag": spaces.Box(0.0, 1.0, (1,), np.float32)}
    )
    env = VecNormalize(DummyVecEnv([lambda: World(THREE, space)]), norm_obs_keys=["speed"])
    model = train(sb3.PPO, env, "MultiInputPolicy", **ON_POLICY, batch_size=32)
    env.save(tmp_path / "stats.pkl")
    policy = load_policy(
        save(model, tmp_path / "model.zip"), trust=True, stats=tmp_path / "stats.pkl", stochastic=True
    )
    data = dataset(num_actions=3, keys={"extra": 4, "speed": 2, "flag": 1})
    assert set(policy.reads) == {"speed", "flag"}
    seen = {key: data.observations[key].astype(np.float32) for key in ("speed", "flag")}
    with torch.no_grad():
        tensors = model.policy.obs_to_tensor(env.normalize_obs(seen))[0]
        expected = model.policy.get_distribution(tensors).distribution.probs.numpy()
    np.testing.assert_allclose(target_actions(data, policy).weights, expected, rtol=1e-4)
    with pytest.raises(BadInput, match=r"statistics are for the keys \['speed'\]"):
        policy.probabilities(np.zeros((2, 3)))
    with pytest.raises(BadInput, match="reads a dict with the keys"):
        load_policy(model).act(np.zeros((2, 3)))


@pytest.mark.parametrize("first", [False, True])
def test_image_policies_transpose_as_sb3_does(tmp_path, first):
    """Data hold (height, width, channels); SB3's own wrapper trained the network on (channels, height,
    width).
    """
    shape = (3, 40, 36) if first else (40, 36, 3)
    env = World(THREE, spaces.Box(0, 255, shape, np.uint8))
    arguments = {
        "n_steps": 16,
        "batch_size": 16,
        "seed": 0,
        "device": "cpu",
        "policy_kwargs": {"net_arch": [8]},
    }
    model = train(sb3.PPO, env, "CnnPolicy", 16, **arguments)
    images = np.random.default_rng(0).integers(256, size=(6, 40, 36, 3), dtype=np.uint8)
    policy = load_policy(save(model, tmp_path / "model.zip"), trust=True, stochastic=True)
    with torch.no_grad():
        tensors = torch.as_tensor(images.transpose(0, 3, 1, 2).copy())
        expected = model.policy.get_distribution(tensors).distribution.probs.numpy()
    np.testing.assert_allclose(policy.probabilities(images), expected, rtol=1e-5)
    np.testing.assert_array_equal(
        load_policy(model).act(images), model.predict(images, deterministic=True)[0]
    )
    with pytest.raises(BadInput, match="wants observations of shape"):
        policy.probabilities(images[:, :20])


def test_wrong_observations_are_named(models):
    policy = load_policy(models("PPO"))
    with pytest.raises(
        BadInput, match=r"The PPO model wants observations of shape \(3,\); the data has \(4,\)"
    ):
        policy.act(np.zeros((2, 4), np.float32))
    with pytest.raises(BadInput, match="reads='key'"):
        policy.act({"state": STATES})


@pytest.mark.parametrize(
    ("algorithm", "actions", "arguments", "options", "message"),
    [
        (sb3_contrib.RecurrentPPO, BOX, {"policy": "MlpLstmPolicy", "n_steps": 8}, {}, "is recurrent"),
        (sb3_contrib.MaskablePPO, THREE, {"n_steps": 8}, {}, "needs action masks"),
        (sb3.PPO, spaces.MultiDiscrete([2, 3]), {"n_steps": 8, "batch_size": 8}, {}, "MultiDiscrete actions"),
        (sb3.PPO, spaces.MultiBinary(2), {"n_steps": 8, "batch_size": 8}, {}, "MultiBinary actions"),
        (sb3.TD3, BOX, {}, {"stochastic": True}, "is deterministic and has no distribution"),
        (sb3.SAC, BOX, {"use_sde": True}, {"stochastic": True}, "gSDE"),
        (sb3.PPO, BOX, {"use_sde": True, "n_steps": 8, "batch_size": 8}, {"stochastic": True}, "gSDE"),
        (sb3.DQN, THREE, {"buffer_size": 10}, {"noise": 0.1}, "noise= is for continuous ones"),
        (sb3.DQN, THREE, {"buffer_size": 10}, {"num_actions": 4}, "chooses among 3 actions; the data has 4"),
        (sb3.DQN, THREE, {"buffer_size": 10}, {"output": "logits"}, "output= does nothing"),
    ],
)
def test_refused_in_one_line(tmp_path, algorithm, actions, arguments, options, message):
    model = algorithm(**{"policy": "MlpPolicy", "env": World(actions), "device": "cpu", **arguments})
    for source in (model, save(model, tmp_path / "model.zip")):
        with pytest.raises(BadInput, match=message) as caught:
            load_policy(source, trust=True, **options)
        assert "\n" not in str(caught.value)


def test_hindsight_replay_needs_no_environment(tmp_path):
    """SB3's own load asks for an environment here; the policy alone does not."""
    goal = spaces.Box(-1.0, 1.0, (2,), np.float32)
    space = spaces.Dict(
        {"observation": spaces.Box(-1.0, 1.0, (3,), np.float32), "achieved_goal": goal, "desired_goal": goal}
    )
    env = World(BOX, space)
    model = sb3.SAC("MultiInputPolicy", env, replay_buffer_class=sb3.HerReplayBuffer, **deepcopy(OFF_POLICY))
    policy = load_policy(save(model, tmp_path / "model.zip"), trust=True)
    seen = {key: np.stack([space[key].sample() for _ in range(5)]) for key in space}
    np.testing.assert_array_equal(policy.act(seen), model.predict(seen, deterministic=True)[0])
    assert set(policy.reads) == set(space)
