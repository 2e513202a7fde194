"""Many discrete actions: the expectation over them, exactly and by draws, against one action at a time."""

import numpy as np
import pytest
import torch

from bcrl.data.dataset import Dataset
from bcrl.estimators.dice.data import DiceData
from bcrl.inference.evidence import action_support
from bcrl.networks import Head
from bcrl.policies.policy import TargetActions
from bcrl.question import Question
from bcrl.representations.bellman_complete import BellmanComplete
from bcrl.representations.bellman_complete.fitting import Watch, _batches, network
from bcrl.representations.features import FittedFeatures, expected_features
from bcrl.representations.fixed import RandomFeatures
from bcrl.training import Run

ACTIONS, EPISODES, LENGTH = 25, 12, 30


def make_data(actions=ACTIONS):
    rng, count = np.random.default_rng(0), EPISODES * LENGTH
    truncated = np.tile(np.arange(LENGTH) == LENGTH - 1, EPISODES)
    return Dataset(
        observations={"observation": rng.normal(size=(count + EPISODES, 4)).astype(np.float32)},
        actions=rng.integers(0, actions, count),
        rewards=rng.normal(size=count),
        terminated=np.zeros(count, dtype=bool),
        truncated=truncated,
        offsets=np.arange(EPISODES + 1) * LENGTH,
        num_actions=actions,
        single=True,
    )


def make_target(rows, actions=ACTIONS, sharp=1.0):
    weights = np.random.default_rng(1).dirichlet(np.full(actions, sharp), rows)
    eye = np.eye(actions, dtype=np.float32)
    return TargetActions(np.broadcast_to(eye, (rows, actions, actions)), weights, exact=True)


def make_net(dataset, **head):
    recipe = BellmanComplete(dim=6, batch_size=64, head=Head(16, **head)).completed(pixels=False)
    return recipe, network(recipe, dataset, torch.Generator().manual_seed(0)).eval()


def one_at_a_time(fitted, z, target):
    each = [
        w[:, None] * fitted.features(z, a)
        for a, w in zip(target.actions.swapaxes(0, 1), target.weights.T, strict=True)
    ]
    return np.sum(each, axis=0)


@pytest.mark.parametrize(
    "head",
    [{}, {"layers": 1}, {"layers": 2}, {"activate_last": True}, {"layer_norm": True}, {"norm": "sphere"}],
    ids=str,
)
def test_the_exact_expectation_is_that_of_one_action_at_a_time(head):
    dataset = make_data()
    fitted = FittedFeatures(make_net(dataset, **head)[1])
    z = fitted.encode(dataset.observe(np.arange(200)))
    for target in (make_target(200), make_target(200, sharp=0.01)):
        plain = one_at_a_time(fitted, z, target)
        assert expected_features(fitted, z, target) == pytest.approx(plain, rel=1e-4, abs=1e-5)


def test_the_closed_form_of_random_features_is_that_of_one_action_at_a_time():
    dataset, target = make_data(), make_target(200)
    everywhere = make_target(dataset.num_observations)
    fitted = RandomFeatures(dim=40).fit(dataset, [everywhere], discount=0.9, seed=0, run=Run(device="cpu"))
    z = fitted.encode(dataset.observe(np.arange(200)))
    plain = one_at_a_time(fitted, z, target)
    assert expected_features(fitted, z, target) == pytest.approx(plain, abs=1e-5)


def test_numbers_of_actions_are_their_one_hot_rows():
    dataset = make_data()
    net = make_net(dataset)[1]
    z, codes = torch.randn(50, 4), torch.randint(ACTIONS, (50,))
    rows = torch.nn.functional.one_hot(codes, ACTIONS).float()
    assert torch.allclose(net(z, codes), net(z, rows), atol=1e-6)


def test_a_thousand_actions_are_drawn_and_right_in_the_mean():
    dataset = make_data(1000)
    fitted = FittedFeatures(make_net(dataset)[1])
    z = np.repeat(fitted.encode(dataset.observe(np.arange(1))), 4000, axis=0)
    one = make_target(1, 1000)
    target = TargetActions(
        np.broadcast_to(one.actions[:1], (4000, 1000, 1000)), np.repeat(one.weights, 4000, axis=0), True
    )
    drawn = expected_features(fitted, z, target)
    plain = one_at_a_time(fitted, z[:1], one)[0]
    error = drawn.std(axis=0) / np.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - plain) < 5.0 * error + 1e-6).all()
    assert drawn.std(axis=0)[:-1].max() > 0.0


def test_draws_follow_the_probabilities_and_never_take_an_impossible_action():
    target = make_target(1, 10, sharp=0.3)
    weights = target.weights[0].copy()
    weights[[0, 4, 9]] = 0.0
    many = TargetActions(
        np.broadcast_to(target.actions[:1], (1, 10, 10)), weights[None] / weights.sum(), True
    )
    codes = many.drawn(np.linspace(0.0, 1.0, 20_001)[None])[0]
    share = np.bincount(codes, minlength=10) / len(codes)
    assert share == pytest.approx(many.weights[0], abs=2e-4)
    assert share[[0, 4, 9]].max() == 0.0


def test_exact_actions_share_one_table_and_their_mean_is_the_probabilities():
    target = make_target(300)
    part = target.take(np.arange(0, 300, 2))
    assert part.actions.strides[0] == 0 and part.actions.shape == (150, ACTIONS, ACTIONS)
    plain = np.einsum("nk,nka->na", target.weights, target.actions)
    assert np.array_equal(target.mean, plain)
    tables = TargetActions(np.ascontiguousarray(target.actions), target.weights)
    assert np.array_equal(tables.mean, plain)


def test_dice_draws_among_many_actions_as_often_as_the_policy_takes_them():
    dataset = make_data()
    weights = np.tile(np.random.default_rng(3).dirichlet(np.ones(ACTIONS)), (dataset.num_observations, 1))
    eye = np.eye(ACTIONS, dtype=np.float32)
    target = TargetActions(np.broadcast_to(eye, (len(weights), *eye.shape)), weights, exact=True)
    question = Question.of(dataset, {"any": Anything()}, discount=0.9)
    states = tuple(torch.zeros(count, 2) for count in (len(weights), 5))
    data = DiceData.of(question, states, target, target.take(np.arange(5)), smoothing=0.0)
    assert not data.exact and data.policy.actions.shape[1] == 8
    batch = data.draw(20_000, torch.Generator().manual_seed(0))
    share = batch.following.actions.mean(dim=(0, 1)).numpy()
    assert batch.following.weights.shape[1] == 1
    assert share == pytest.approx(weights[0], abs=0.02)


class Anything:
    reads = None

    def probabilities(self, observations):
        return np.full((len(observations), ACTIONS), 1.0 / ACTIONS)


def test_two_draws_give_the_second_moment_of_the_expectation():
    """The watch's moments of many fresh draws against the exact ones; a plain mean of two is far off."""
    dataset = make_data()
    recipe, net = make_net(dataset)
    target = make_target(dataset.num_observations)
    batches = _batches(recipe, dataset, [target], net, np.arange(len(dataset)), 0)
    assert batches.draws
    z = net.encoder(net.encoder.read(dataset.observe(dataset.rows + 1), torch.device("cpu")))
    with torch.no_grad():
        exact = net.over_actions(z, torch.from_numpy(target.weights[dataset.rows + 1])).double().numpy()
        totals, plain, repeats = 0.0, 0.0, 300
        for number in range(repeats):
            uniforms = np.random.default_rng(number).random((len(dataset), 2))
            codes = torch.from_numpy(target.take(dataset.rows + 1).drawn(uniforms))
            mean, half = (part.double().numpy() for part in net.draws_of_policy(z, codes))
            plain = plain + mean.T @ mean / repeats
            totals = totals + (mean.T @ mean - half.T @ half) / repeats
    wanted = exact.T @ exact
    assert np.abs(totals - wanted).max() < 0.2 * np.abs(plain - wanted).max()
    watch = Watch(net, batches, np.arange(len(dataset)), discount=0.9, limit=512, chunk=512)
    assert np.isfinite(list(watch().values())).all()


def test_support_of_many_one_hot_actions_is_that_of_the_table():
    dataset = make_data()
    target = make_target(dataset.num_observations)
    states = dataset.observe(np.arange(dataset.num_observations))["observation"]
    tables = TargetActions(np.ascontiguousarray(target.actions), target.weights, exact=False)
    ones = np.ones(len(dataset))
    found, plain = (action_support(states, dataset, t, ones, seed=0) for t in (target, tables))
    assert 0.0 < plain < 1.0 and found == pytest.approx(plain, abs=1e-12)
