"""One phi for many policies: a step of training looks at a few of them, and every policy has its turn."""

import dataclasses

import numpy as np
import pytest
import torch

from bcrl.linear import Moments
from bcrl.networks import Head
from bcrl.policies.policy import TargetActions
from bcrl.representations.batches import Batches
from bcrl.representations.bellman_complete import BellmanComplete
from bcrl.representations.bellman_complete.fitting import Watch, network, train_features
from bcrl.representations.bellman_complete.objective import Objective, closed_form, moments_of
from bcrl.representations.features import Encoded
from bcrl.training import Run
from bcrl_bench.worlds import lqr

RECIPE = BellmanComplete(
    dim=6, steps=4, batch_size=128, completeness_weight=0.01, head=Head(16, 2), evaluations=2, steady=None
)
DATA = lqr().dataset(20, 10, 0)
COUNT = 7


def make_targets(count=COUNT):
    rng = np.random.default_rng(0)
    shape = (DATA.num_observations, 1, DATA.action_dim)
    ones = np.ones(shape[:2])
    return [TargetActions(rng.normal(size=shape).astype(np.float32), ones) for _ in range(count)]


def make_batches(net, few):
    everything = np.arange(len(DATA))
    return Batches(
        DATA, make_targets(), net.encoder, everything, batch_size=128, run_length=1, seed=3, few=few
    )


def make_net():
    return network(RECIPE, DATA, torch.Generator().manual_seed(0))


def loss_of(net, batch):
    z, z_next = batch.encode(net.encoder)
    ahead = [net.of_policy(z_next, a, w) for a, w in zip(batch.next_actions, batch.next_weights, strict=True)]
    moments = moments_of(net(z, batch.actions), ahead, batch.rewards, still=True)
    objective = Objective(RECIPE, discount=0.9, reward_scale=1.0)
    return float(objective(moments, *closed_form(moments, 0.9, RECIPE.ridge))[0])


def test_a_step_looks_at_a_few_policies_and_each_has_its_turn():
    batches = make_batches(make_net(), few=3)
    asked = [batches._policies(step) for step in range(200)]
    assert all(len(set(one)) == 3 for one in asked)
    turns = np.bincount(np.concatenate(asked), minlength=COUNT)
    assert turns.min() > 0.7 * turns.mean() and turns.max() < 1.3 * turns.mean()
    assert len(batches.at(0)[0].next_actions) == 3
    # A resumed training sees the same ones.
    assert np.array_equal(make_batches(make_net(), few=3)._policies(17), asked[17])


def test_the_loss_of_few_policies_is_that_of_all_in_the_mean():
    net = make_net()
    batches = make_batches(net, few=3)
    transitions = np.arange(128)
    with torch.no_grad():
        whole = loss_of(net, batches.gather(transitions))
        parts = [
            loss_of(net, batches.gather(transitions, policies=np.array(three)))
            for three in [(i, (i + 1) % COUNT, (i + 3) % COUNT) for i in range(COUNT)]
        ]
    assert np.mean(parts) == pytest.approx(whole, rel=1e-9)  # each policy is in three of the seven
    assert np.ptp(parts) > 1e-3 * abs(whole)


def test_three_policies_are_all_looked_at_and_papers_look_at_all():
    net = make_net()
    assert make_batches(net, few=COUNT).few is None
    assert make_batches(net, few=None)._policies(0) is None
    targets = make_targets()

    def trained(recipe, targets):
        return train_features(recipe, DATA, targets, discount=0.9, seed=0, run=Run(device="cpu"))

    fitted = trained(RECIPE, targets)
    assert np.isfinite(fitted.metrics["loss"]).all()
    published = dataclasses.replace(RECIPE, published=True)
    # All seven against any three: the losses of the same first step differ.
    assert trained(published, targets).metrics["loss"] != trained(published, targets[:3]).metrics["loss"]


def test_a_hopeless_policy_among_many_does_not_move_what_is_watched():
    net = make_net()
    targets = make_targets()
    far = TargetActions(1e4 * targets[0].actions, targets[0].weights)
    watched = []
    for first in (targets[0], far):
        batches = make_batches(net, few=3)
        batches.targets = [first, *targets[1:]]
        watch = Watch(net, batches, np.arange(len(DATA)), discount=0.9, limit=512, chunk=512)
        assert 0 in watch.policies and len(watch.policies) == 3
        alone = [judged_alone(net, [target]) for target in (first, targets[3], targets[6])]
        watched.append(watch()["value"])
        assert watched[-1] == pytest.approx(np.median(alone), rel=1e-9)
    assert watched[0] != 0.0 and abs(watched[1]) < 1e3 * abs(watched[0])


def judged_alone(net, targets):
    batches = make_batches(net, few=None)
    batches.targets = targets
    return Watch(net, batches, np.arange(len(DATA)), discount=0.9, limit=512, chunk=512)()["value"]


def test_moments_of_all_policies_in_one_pass_are_those_of_each():
    fitted = train_features(RECIPE, DATA, make_targets(1), discount=0.9, seed=0, run=Run(device="cpu"))
    encoded, rows = Encoded.of(DATA, fitted), np.arange(0, len(DATA), 2)
    targets = make_targets()
    together = encoded.moments_of_all(rows, targets)
    for target, moments in zip(targets, together, strict=True):
        plain = Moments.from_features(
            encoded.logged(rows),
            encoded.policy(DATA.rows[rows] + 1, target),
            DATA.rewards[rows],
            DATA.terminated[rows],
        )
        for name in ("sigma", "c", "b", "sigma_next", "e"):
            assert np.array_equal(getattr(moments, name), getattr(plain, name))
