"""Our own actors as safetensors: the same actions as the networks they came from, random ones from the
generator alone.
"""

from hashlib import sha256

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from scipy import stats

from bcrl.errors import BadInput
from bcrl.policies import load_policy
from bcrl.policies.actor_file import save_actor
from bcrl.policies.actors import PixelActor, StateActor
from bcrl.policies.kinds import Deterministic, Stochastic


@pytest.fixture
def weights():
    generator = np.random.default_rng(0)
    sizes = {"latent_pi.0": (16, 5), "latent_pi.2": (12, 16), "mu": (2, 12), "log_std": (2, 12)}
    tensors = {f"{name}.weight": generator.normal(size=size) / size[1] ** 0.5 for name, size in sizes.items()}
    tensors |= {f"{name}.bias": generator.normal(size=size[0]) / 4 for name, size in sizes.items()}
    return {name: value.astype(np.float32) for name, value in tensors.items()}


@pytest.fixture
def path(tmp_path, weights):
    save_file(weights, tmp_path / "actor.safetensors", {"reads": "state"})
    return tmp_path / "actor.safetensors"


def gaussian(weights, states):
    """Mean and standard deviation before the tanh, in numpy float64."""
    hidden = states
    for layer in ("latent_pi.0", "latent_pi.2"):
        hidden = np.maximum(hidden @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"], 0.0)
    mean, log_std = (
        hidden @ weights[f"{name}.weight"].T + weights[f"{name}.bias"] for name in ("mu", "log_std")
    )
    return mean, np.exp(np.clip(log_std, -20, 2))


def test_deterministic_action(path, weights):
    policy = load_policy(path)
    states = np.random.default_rng(1).normal(size=(9, 5))
    assert isinstance(policy, Deterministic) and policy.reads == "state"
    np.testing.assert_allclose(
        policy.act(states), np.tanh(gaussian(weights, states)[0]), rtol=1e-5, atol=1e-6
    )
    assert policy.path == path and policy.digest == sha256(path.read_bytes()).hexdigest()
    assert load_policy(str(path), reads="other").reads == "other"


def test_stochastic_actor_is_the_tanh_gaussian(path, weights):
    policy = load_policy(path, stochastic=True)
    assert isinstance(policy, Stochastic)
    states = np.repeat(np.random.default_rng(1).normal(size=(1, 5)), 4000, axis=0)
    actions = policy.sample(states, np.random.default_rng(0))
    mean, std = (part[0] for part in gaussian(weights, states))
    drawn = np.arctanh(actions.astype(np.float64))
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=5 * std.max() / 4000**0.5)
    np.testing.assert_allclose(drawn.std(axis=0), std, rtol=0.06)
    expected = (stats.norm.logpdf(drawn, mean, std) - np.log1p(-(np.tanh(drawn) ** 2))).sum(axis=1)
    calm = np.abs(actions).max(axis=1) < 0.99
    np.testing.assert_allclose(policy.log_prob(states, actions)[calm], expected[calm], atol=2e-3)
    assert np.isfinite(policy.log_prob(states, np.sign(actions))).all()


def test_noise_is_clipped_and_its_edges_carry_mass(path, weights):
    policy = load_policy(path, noise=0.7)
    state = np.random.default_rng(1).normal(size=(1, 5))
    centre = np.tanh(gaussian(weights, state)[0])[0]
    states = np.repeat(state, 20000, axis=0)
    actions = policy.sample(states, np.random.default_rng(0))
    assert actions.dtype == np.float32 and np.abs(actions).max() == 1.0
    log_prob = policy.log_prob(states[:3], np.array([[1.0, 0.2], [0.1, -1.0], [0.3, 0.4]]))
    inside, above, below = (
        lambda i, a: stats.norm.logpdf(a, centre[i], 0.7),
        lambda i: stats.norm.logsf(1.0, centre[i], 0.7),
        lambda i: stats.norm.logcdf(-1.0, centre[i], 0.7),
    )
    expected = [above(0) + inside(1, 0.2), inside(0, 0.1) + below(1), inside(0, 0.3) + inside(1, 0.4)]
    np.testing.assert_allclose(log_prob, expected, rtol=1e-5)
    np.testing.assert_allclose((actions[:, 0] == 1.0).mean(), np.exp(above(0)), atol=0.02)


def test_draws_and_loading_leave_the_global_generator_alone(path):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    policy = load_policy(path, stochastic=True)
    first = policy.sample(np.ones((4, 5)), np.random.default_rng(5))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(4)
    np.testing.assert_array_equal(
        load_policy(path, stochastic=True).sample(np.ones((4, 5)), np.random.default_rng(5)), first
    )


def pixel_actor(**sizes):
    return PixelActor.initialised(
        (36, 30, 9), 2, torch.Generator().manual_seed(0), feature_dim=10, hidden=16, **sizes
    )


def test_pixel_actor_round_trip(tmp_path):
    actor = pixel_actor()
    save_actor(tmp_path / "pixels.safetensors", actor, {"reads": "pixels", "stack": "3"})
    policy = load_policy(tmp_path / "pixels.safetensors")
    images = np.random.default_rng(0).integers(256, size=(300, 36, 30, 9), dtype=np.uint8)
    assert policy.reads == "pixels" and policy.stack == 3
    with torch.no_grad():
        np.testing.assert_allclose(
            policy.act(images), actor(torch.as_tensor(images)).numpy(), rtol=1e-5, atol=1e-6
        )
    assert load_policy(tmp_path / "pixels.safetensors", noise=0.1).sample(
        images[:2], np.random.default_rng(0)
    ).shape == (2, 2)


def test_pixel_actor_is_drqv2s(tmp_path):
    """The format's arithmetic, written out with torch's functions and the tensor names alone."""
    actor = pixel_actor()
    save_actor(tmp_path / "pixels.safetensors", actor, {"reads": "pixels"})
    names = {
        *(f"encoder.conv.{i}.{part}" for i in range(4) for part in ("weight", "bias")),
        *(
            f"{layer}.{part}"
            for layer in ("trunk.0", "trunk.1", "policy.0", "policy.2", "policy.4")
            for part in ("weight", "bias")
        ),
    }
    w = actor.state_dict()
    assert set(w) == names
    images = np.random.default_rng(0).integers(256, size=(3, 36, 30, 9), dtype=np.uint8)
    x = torch.as_tensor(images).permute(0, 3, 1, 2) / 255.0 - 0.5
    for i in range(4):
        x = torch.relu(
            torch.conv2d(
                x, w[f"encoder.conv.{i}.weight"], w[f"encoder.conv.{i}.bias"], stride=2 if i == 0 else 1
            )
        )
    x = x.flatten(1) @ w["trunk.0.weight"].T + w["trunk.0.bias"]
    x = torch.tanh(torch.layer_norm(x, (10,), w["trunk.1.weight"], w["trunk.1.bias"]))
    for i in (0, 2):
        x = torch.relu(x @ w[f"policy.{i}.weight"].T + w[f"policy.{i}.bias"])
    expected = torch.tanh(x @ w["policy.4.weight"].T + w["policy.4.bias"])
    np.testing.assert_allclose(
        load_policy(tmp_path / "pixels.safetensors").act(images), expected.numpy(), rtol=1e-4, atol=1e-6
    )


def test_pixel_actor_initialisation_is_the_generators():
    torch.manual_seed(0)
    first = pixel_actor().state_dict()
    torch.manual_seed(1)
    second = pixel_actor().state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_state_actor_round_trip(tmp_path):
    actor = StateActor(4, 3, (8, 8, 8))
    save_actor(tmp_path / "deep.safetensors", actor, {})
    states = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        np.testing.assert_array_equal(
            load_policy(tmp_path / "deep.safetensors").act(states.numpy()), actor(states).numpy()
        )


def test_read_only_observations(path, tmp_path):
    save_actor(tmp_path / "pixels.safetensors", pixel_actor(), {"reads": "pixels"})
    states, images = np.ones((4, 5), np.float32), np.ones((4, 36, 30, 9), np.uint8)
    for source, array in ((path, states), (tmp_path / "pixels.safetensors", images)):
        array.flags.writeable = False
        assert load_policy(source).act(array).shape == (4, 2)


def test_wrong_observations_are_named(path, tmp_path):
    with pytest.raises(BadInput, match="vectors of 5 numbers; got float64 of shape \\(2, 4\\)"):
        load_policy(path).act(np.zeros((2, 4)))
    with pytest.raises(BadInput, match="reads='key'"):
        load_policy(path).act({"state": np.zeros((2, 5))})
    save_actor(tmp_path / "pixels.safetensors", pixel_actor(), {"reads": "pixels"})
    for images in (
        np.zeros((2, 36, 30, 9)),
        np.zeros((2, 36, 40, 9), np.uint8),
        np.zeros((2, 36, 30, 3), np.uint8),
    ):
        with pytest.raises(BadInput, match="uint8 images of 9 channels"):
            load_policy(tmp_path / "pixels.safetensors").act(images)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("mu.weight"), "no actor of ours"),
        (lambda w: w.pop("log_std.bias"), "no actor of ours"),
        (lambda w: w.update({"mu.weight": np.zeros((2, 7), np.float32)}), "no actor of ours"),
        (lambda w: w.update({"extra": np.zeros(3, np.float32)}), "no actor of ours"),
        (dict.clear, "no actor of ours"),
    ],
)
def test_other_tensors_are_refused(tmp_path, weights, change, message):
    change(weights)
    save_file(weights, tmp_path / "bad.safetensors")
    with pytest.raises(BadInput, match=message) as caught:
        load_policy(tmp_path / "bad.safetensors")
    assert "\n" not in str(caught.value)


def test_pixel_actor_refusals(tmp_path):
    save_actor(tmp_path / "pixels.safetensors", pixel_actor(), {"stack": "three"})
    with pytest.raises(BadInput, match="stack='three'"):
        load_policy(tmp_path / "pixels.safetensors")
    with pytest.raises(BadInput, match="has no distribution of its own"):
        load_policy(tmp_path / "pixels.safetensors", stochastic=True)
    with pytest.raises(BadInput, match="threads= does nothing"):
        load_policy(tmp_path / "pixels.safetensors", threads=2)
