"""Functions, torch modules and objects as policies: what they answer is what the estimate is about."""

import numpy as np
import pytest
import torch
from policies.small_data import dataset
from torch import distributions as td

from bcrl.errors import BadInput
from bcrl.policies import load_policy
from bcrl.policies.kinds import Deterministic, Discrete, Stochastic
from bcrl.policies.policy import (
    DiscretePolicy,
    Policy,
    StochasticPolicy,
    UnresolvedPolicy,
    resolve_policy,
    target_actions,
)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(3, 8), torch.nn.Dropout(0.5), torch.nn.Tanh(), torch.nn.Linear(8, 2)
    )


def test_numpy_function():
    data = dataset()
    policy = resolve_policy(data, load_policy(lambda o: np.tanh(o[:, :2])))
    assert isinstance(policy, Deterministic)
    np.testing.assert_array_equal(
        policy.act(data.observations["observation"]), np.tanh(data.observations["observation"][:, :2])
    )


@pytest.mark.parametrize("answer", [torch.as_tensor, np.ndarray.tolist, np.asarray])
def test_answers_may_be_torch_lists_or_numpy(answer):
    data = dataset()
    found = target_actions(data, load_policy(lambda o: answer(o[:, :2])))
    np.testing.assert_allclose(found.actions[:, 0], data.observations["observation"][:, :2], rtol=1e-6)


def test_module_gets_tensors_in_evaluation_mode_and_is_left_as_it_was(net):
    net[2].eval()
    data = dataset()
    states = data.observations["observation"]
    found = resolve_policy(data, load_policy(net)).act(states)
    assert [part.training for part in net.modules()] == [True, True, True, False, True]
    net.eval()
    with torch.no_grad():
        np.testing.assert_array_equal(found, net(torch.as_tensor(states, dtype=torch.float32)).numpy())


def test_closure_over_a_module_and_its_bound_method_get_tensors(net):
    net.eval()
    data = dataset()
    expected = resolve_policy(data, load_policy(net)).act(data.observations["observation"])
    for source in (lambda o: net(o), net.forward):
        np.testing.assert_array_equal(
            resolve_policy(data, load_policy(source)).act(data.observations["observation"]), expected
        )


def test_double_precision_module_gets_doubles():
    net = torch.nn.Linear(3, 2).double()
    assert resolve_policy(dataset(), load_policy(net)).act(np.ones((4, 3), np.float32)).dtype == np.float64


def test_read_only_observations_and_actions(net):
    """Memory-mapped data cannot be written; torch warns of such memory, and warnings are errors here."""
    states, actions = np.ones((4, 3), np.float32), np.ones((4, 2), np.float32)
    for array in (states, actions):
        array.flags.writeable = False
    assert load_policy(net).resolve(states).act(states).shape == (4, 2)
    policy = load_policy(lambda o: td.Normal(torch.zeros(len(o), 2), 1.0)).resolve(states)
    assert policy.log_prob(states, actions).shape == (4,)


def test_one_observation_at_a_time():
    data = dataset()
    with pytest.raises(BadInput, match="batched=False"):
        resolve_policy(data, load_policy(lambda o: [max(o[0], o[1]), o[2]]))
    with pytest.raises(BadInput, match="batched=False"):
        resolve_policy(data, load_policy(lambda o: o.sum() * np.ones(3)))
    policy = resolve_policy(data, load_policy(lambda o: [max(o[0], o[1]), o[2]], batched=False))
    states = data.observations["observation"]
    np.testing.assert_array_equal(
        policy.act(states), np.stack([states[:, :2].max(axis=1), states[:, 2]], axis=1)
    )


def test_normal_is_evaluated_as_random_not_as_its_mean():
    data = dataset()
    policy = resolve_policy(data, load_policy(lambda o: td.Normal(torch.as_tensor(o[:, :2]), 0.5)))
    assert isinstance(policy, Stochastic) and isinstance(policy, StochasticPolicy)
    found = target_actions(data, policy, num_samples=4000)
    centre = data.observations["observation"][:, :2]
    np.testing.assert_allclose(found.actions.mean(axis=1), centre, atol=5 * 0.5 / 4000**0.5)
    np.testing.assert_allclose(found.actions.std(axis=1), 0.5, rtol=0.1)


def test_draws_depend_on_the_generator_alone():
    policy = load_policy(lambda o: td.Normal(torch.as_tensor(o[:, :2]), 0.5)).resolve(np.zeros((5, 3)))
    observations = np.zeros((5, 3))
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = policy.sample(observations, np.random.default_rng(7))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    np.testing.assert_array_equal(policy.sample(observations, np.random.default_rng(7)), first)
    generator = np.random.default_rng(7)
    assert not np.array_equal(policy.sample(observations, generator), policy.sample(observations, generator))
    assert not np.array_equal(policy.sample(observations, np.random.default_rng(8)), first)


@pytest.mark.parametrize("independent", [False, True])
def test_log_prob_sums_over_components(independent):
    def respond(o):
        normal = td.Normal(torch.as_tensor(o[:, :2]), 0.5)
        return td.Independent(normal, 1) if independent else normal

    observations, actions = np.random.default_rng(0).normal(size=(2, 6, 3))
    found = load_policy(respond).resolve(observations).log_prob(observations, actions[:, :2])
    z = (actions[:, :2] - observations[:, :2]) / 0.5
    np.testing.assert_allclose(found, (-0.5 * z**2 - np.log(0.5) - 0.5 * np.log(2 * np.pi)).sum(axis=1))


def squashed(o, scale=1.0):
    base = td.Independent(td.Normal(torch.as_tensor(o[:, :2], dtype=torch.float32), 0.5), 1)
    return td.TransformedDistribution(base, [td.TanhTransform(cache_size=1), td.AffineTransform(0.0, scale)])


@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_squashed_density_integrates_to_one_and_is_finite_on_the_edge(scale):
    policy = load_policy(lambda o: squashed(o, scale)).resolve(np.zeros((2, 3)))
    grid = np.linspace(-1, 1, 201)[:-1] * scale + scale / 200
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    density = np.exp(policy.log_prob(np.zeros((len(points), 3)), points))
    np.testing.assert_allclose(density.sum() * (2 * scale / 200) ** 2, 1.0, atol=2e-3)
    edge = policy.log_prob(np.zeros((3, 3)), scale * np.array([[1.0, 0.0], [-1.0, 1.0], [1.2, 0.0]]))
    assert np.isfinite(edge[:2]).all() and edge[2] == -np.inf
    actions = policy.sample(np.zeros((100, 3)), np.random.default_rng(0))
    assert actions.shape == (100, 2) and np.abs(actions).max() <= scale


def test_bounded_components_outside_have_no_density():
    policy = load_policy(lambda o: td.Uniform(-torch.ones(len(o), 2), torch.ones(len(o), 2))).resolve(
        np.zeros((2, 3))
    )
    found = policy.log_prob(np.zeros((3, 3)), np.array([[0.5, 0.5], [0.5, 2.0], [-1.0, 1.0]]))
    np.testing.assert_allclose(found, [-np.log(4), -np.inf, -np.log(4)], rtol=1e-6)


@pytest.mark.parametrize("one_hot", [False, True])
def test_categorical_gives_exact_probabilities(one_hot):
    """SCOPE-RL evaluated epsilon-greedy heads as their greedy base; here the probabilities are the policy."""
    data = dataset(num_actions=3)
    rows = np.random.default_rng(0).dirichlet(np.ones(3), size=len(data) + 2)
    rows[0] = [0.0, 0.25, 0.75]
    states = data.observations["observation"]

    def respond(o):
        index = [int(np.flatnonzero((states == row).all(axis=1))[0]) for row in o]
        kind = td.OneHotCategorical if one_hot else td.Categorical
        return kind(probs=torch.as_tensor(rows[index]))

    found = target_actions(data, load_policy(respond))
    np.testing.assert_allclose(found.weights, rows, rtol=1e-12, atol=1e-15)
    assert found.weights[0, 0] == 0.0


def test_bernoulli_is_two_actions():
    policy = load_policy(lambda o: td.Bernoulli(torch.full((len(o),), 0.2))).resolve(np.zeros((2, 3)))
    assert isinstance(policy, DiscretePolicy)
    np.testing.assert_allclose(policy.probabilities(np.zeros((4, 3))), np.tile([0.8, 0.2], (4, 1)), rtol=1e-6)


def test_scores_have_to_be_named():
    data = dataset(num_actions=3)
    with pytest.raises(BadInput, match="output='logits'"):
        target_actions(data, load_policy(lambda o: o))
    states = data.observations["observation"]
    odds = np.exp(states - states.max(axis=1, keepdims=True))
    soft = target_actions(data, load_policy(lambda o: o, output="logits")).weights
    np.testing.assert_allclose(soft, odds / odds.sum(axis=1, keepdims=True))
    table = odds / odds.sum(axis=1, keepdims=True)
    given = target_actions(
        data, load_policy(lambda o: np.exp(o) / np.exp(o).sum(axis=1, keepdims=True), output="probabilities")
    )
    np.testing.assert_allclose(given.weights, table)
    greedy = target_actions(data, load_policy(lambda o: o, output="q_values"))
    np.testing.assert_array_equal(greedy.actions[:, 0].argmax(axis=1), states.argmax(axis=1))


def test_reads_on_dict_data():
    data = dataset(keys={"state": 3, "goal": 2})
    one = target_actions(data, load_policy(lambda o: o[:, :2], reads="state"))
    np.testing.assert_allclose(one.actions[:, 0], data.observations["state"][:, :2], rtol=1e-6)
    both = target_actions(data, load_policy(lambda o: o["state"][:, :2] + o["goal"], reads=["state", "goal"]))
    np.testing.assert_allclose(
        both.actions[:, 0], data.observations["state"][:, :2] + data.observations["goal"], rtol=1e-6
    )
    everything = target_actions(data, load_policy(lambda o: o["goal"]))
    np.testing.assert_allclose(everything.actions[:, 0], data.observations["goal"], rtol=1e-6)
    with pytest.raises(BadInput, match="given a dict of state, goal; reads='state' gives it one of them"):
        target_actions(data, load_policy(lambda o: np.tanh(o)))
    with pytest.raises(BadInput, match="reads 'pixels'"):
        target_actions(data, load_policy(lambda o: o, reads="pixels"))


def test_layout_moves_channels(net):
    images = np.random.default_rng(0).integers(256, size=(3, 8, 10, 3), dtype=np.uint8)
    policy = load_policy(lambda o: o.astype(float).mean(axis=(2, 3)), layout="nchw").resolve(images)
    np.testing.assert_allclose(policy.act(images), images.astype(float).mean(axis=(1, 2)))
    conv = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), torch.nn.Flatten())
    with pytest.raises(BadInput, match="layout='nchw'"):
        load_policy(conv).resolve(images)


class Whole:
    reads = "state"

    def act(self, observations):
        return observations[:, :2]


class Bare:
    def probabilities(self, observations):
        return np.full((len(observations), 4), 0.25)


class Sampler:
    def sample(self, observations, generator):
        return generator.normal(size=(len(observations), 2))


def test_an_object_that_is_a_policy_passes_through():
    policy = Whole()
    assert load_policy(policy) is policy
    assert load_policy(policy, reads="other").reads == "other"


def test_objects_without_reads_are_wrapped():
    bare = load_policy(Bare())
    assert isinstance(bare, Discrete) and isinstance(bare, DiscretePolicy) and bare.reads is None
    sampler = load_policy(Sampler())
    assert isinstance(sampler, StochasticPolicy)
    assert sampler.sample(np.zeros((3, 1)), np.random.default_rng(0)).shape == (3, 2)
    with pytest.raises(BadInput, match="no log_prob"):
        sampler.log_prob(np.zeros((3, 1)), np.zeros((3, 2)))


class Agent(Whole):
    def reset(self):
        pass


def recurrent(o):
    return o[:, :2], "hidden"


def noisy(o):
    return o[:, :2] + np.random.default_rng().normal(size=(len(o), 2))


def broken(o):
    raise KeyError("speed")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Agent(), "'reset', so it carries a state"),
        (recurrent, "carry a state from step to step"),
        (noisy, "random or keeps a state"),
        (broken, "KeyError"),
        (3.0, "float is no policy"),
        (Whole, "is a class"),
        (lambda o: o[:1], "shape \\(1, 3\\) for 2 observations"),
        (lambda o: td.Poisson(torch.ones(len(o))), "one Categorical per observation"),
        (lambda o: td.Categorical(torch.ones(len(o), 2, 3)), "one Categorical per observation"),
        (torch.nn.LSTM(3, 2, batch_first=True), "carry a state from step to step"),
    ],
)
def test_refused_in_one_line(source, message):
    with pytest.raises(BadInput, match=message) as caught:
        target_actions(dataset(), load_policy(source))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": "softmax"}, "output='softmax'; expected one of"),
        ({"layout": "hwc"}, "layout='hwc'"),
        ({"noise": -1.0}, "noise=-1.0"),
        ({"noise": float("nan")}, "noise=nan"),
        ({"noise": 0.1, "stochastic": True}, "leave it out"),
        ({"threads": 0}, "threads=0"),
        ({"num_actions": 0}, "num_actions=0"),
        ({"stochastic": True}, "stochastic= does nothing for a function"),
        ({"output_name": "a"}, "output_name= does nothing for a function"),
        ({"stats": 3}, "stats is a int"),
        ({"stats": "missing.pkl"}, "No file at missing.pkl"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(BadInput, match=message):
        load_policy(lambda o: o, **options)


def test_unresolved_policy_acts_when_it_is_deterministic():
    policy = load_policy(lambda o: o[:, :2])
    assert isinstance(policy, UnresolvedPolicy) and isinstance(policy, Policy)
    np.testing.assert_array_equal(policy.act(np.ones((3, 3))), np.ones((3, 2)))
    with pytest.raises(BadInput, match="is random"):
        load_policy(lambda o: td.Normal(torch.as_tensor(o), 1.0)).act(np.ones((3, 3)))
