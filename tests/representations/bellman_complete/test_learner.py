"""One training step: large batches, several processes, resume, switches."""

import copy
import dataclasses
import multiprocessing

import numpy as np
import pytest
import torch
import torch.distributed as dist

from bcrl.networks import Head, HeadNet, encoder_for
from bcrl.policies.policy import target_actions
from bcrl.representations.batches import Batches
from bcrl.representations.bellman_complete import BellmanComplete, Design, DoubleSampling, GradientSteps
from bcrl.representations.bellman_complete.fitting import Choice
from bcrl.representations.bellman_complete.learner import BellmanCompleteLearner
from bcrl.representations.features import FeatureNet, restore
from bcrl.training import Run
from bcrl_bench.worlds import lqr, random_tabular

# The ridge keeps float32 rounding of a few rows from growing through sigma^{-1}; gradients are compared to
# 1e-5.
SMALL = BellmanComplete(
    completeness_weight=0.003,
    dim=8,
    head=Head(hidden=16),
    batch_size=64,
    steps=20,
    evaluations=4,
    design=Design("D", 0.01),
    ridge=1e-3,
)


def make_data(seed=0):
    world = lqr()
    dataset = world.dataset(20, 10, seed)
    return world, dataset, [target_actions(dataset, world.target)]


def make_batches(dataset, targets, encoder, **options):
    return Batches(dataset, targets, encoder, np.arange(len(dataset)), seed=0, **options)


def make_learner(recipe, rank=0, world_size=1, *, data=None, standardised_by=None):
    dataset, targets = make_data()[1:] if data is None else data
    generator = torch.Generator().manual_seed(0)
    encoder = encoder_for(dataset if standardised_by is None else standardised_by, generator=generator)
    head = HeadNet(encoder.z_dim, dataset.action_dim, recipe.dim - 1, hidden=16, generator=generator)
    net = FeatureNet(encoder, head, constant=True)
    options = {"batch_size": recipe.batch_size, "run_length": 1, "rank": rank, "world": world_size}
    batches, numbers = make_batches(dataset, targets, encoder, **options), {"discount": 0.9, "steps": 20}
    return BellmanCompleteLearner(
        recipe, net, batches, reward_variance=1.0, generator=generator, choice=Choice(False), **numbers
    )


def gradients(learner):
    learner.step()
    return torch.cat([p.grad.flatten() for p in learner.net.parameters()])


def test_algorithm_3_line_by_line():
    """Published terms against plain torch: M and rho first, phi by the new ones, then the target network."""
    tau, weight, lr, inner_lr, discount = 0.3, 1e-3, 3e-3, 1e-2, 0.9
    recipe = dataclasses.replace(
        BellmanComplete.paper(),
        **{"dim": 8, "batch_size": 64, "lr": lr, "design": Design("D", weight)},
        inner=GradientSteps(inner_lr, target_tau=tau),
    )
    learner = make_learner(recipe)
    net, m, rho = copy.deepcopy(learner.net), learner.inner.m.detach()[0], learner.inner.rho.detach()
    target, m, rho = copy.deepcopy(net), m.clone().requires_grad_(), rho.clone().requires_grad_()
    inner, outer = torch.optim.Adam([m, rho], lr=inner_lr), torch.optim.Adam(net.parameters(), lr=lr)
    for step in range(3):
        (batch,) = learner.batches.at(step)
        z, z_next = batch.encode(net.encoder)
        phi = net(z, batch.actions).double()
        with torch.no_grad():
            ahead = target.of_policy(z_next, batch.next_actions[0], batch.next_weights[0]).double()

        def loss(phi, ahead=ahead, batch=batch):
            miss = (phi @ m.T - discount * batch.alive * ahead).square().sum(dim=1)
            return (miss + (phi @ rho - batch.rewards).square()).mean()

        inner.zero_grad()
        loss(phi.detach()).backward()
        inner.step()
        outer.zero_grad()
        log_det = torch.logdet(phi.T @ phi / len(phi) + 1e-8 * torch.eye(8))
        (loss(phi) - weight * log_det).backward()
        outer.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), net.parameters(), strict=True):
                slow.copy_((1.0 - tau) * slow + tau * fast)
        learner.step()
        torch.testing.assert_close(learner.inner.m.detach()[0], m.detach(), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(learner.inner.rho.detach(), rho.detach(), rtol=1e-4, atol=1e-6)
        for ours, plain in ((learner.net, net), (learner.target, target)):
            for one, other in zip(ours.parameters(), plain.parameters(), strict=True):
                torch.testing.assert_close(one.detach(), other.detach(), rtol=1e-3, atol=1e-5)


RECIPES = {
    "default": SMALL,
    "plain": dataclasses.replace(SMALL, metric="plain"),
    "E": dataclasses.replace(SMALL, design=Design("E", 1.0)),
    "running": dataclasses.replace(SMALL, running_moments=0.9),
    "gradient": dataclasses.replace(SMALL, inner=GradientSteps(target_tau=0.1)),
    "corrected": dataclasses.replace(SMALL, double_sampling=DoubleSampling()),
    "constraint": dataclasses.replace(
        SMALL, design=Design("E", constraint=0.1), head=Head(hidden=16, norm="sphere")
    ),
}


@pytest.mark.parametrize("name", RECIPES)
def test_chunks_give_the_gradient_of_the_whole_batch(name):
    whole = make_learner(RECIPES[name])
    parts = make_learner(dataclasses.replace(RECIPES[name], chunk=23))
    for _ in range(3):
        one, two = gradients(whole), gradients(parts)
        torch.testing.assert_close(one, two, atol=1e-5 * float(one.abs().max()), rtol=1e-4)


SHARED = ("default", "E", "corrected")


def share(rank, size, path):
    """Gradients of this process's share, averaged over all."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=size)
    try:
        learners = [make_learner(RECIPES[name], rank, size) for name in SHARED]
        found = [[gradients(learner) for _ in range(2)] for learner in learners]
        dist.barrier()
    finally:
        dist.destroy_process_group()
    return found


def test_two_processes_give_the_gradient_of_one(tmp_path):
    other = multiprocessing.get_context("spawn").Process(target=share, args=(1, 2, tmp_path / "store"))
    other.start()
    shared = share(0, 2, tmp_path / "store")
    other.join(timeout=60)
    assert other.exitcode == 0
    for name, found in zip(SHARED, shared, strict=True):
        alone = make_learner(RECIPES[name])
        for got in found:
            expected = gradients(alone)
            error = (expected - got).norm() / expected.norm()
            assert float(error) < 1e-5, name


def test_per_process_log_det_would_be_another_objective():
    """Why the moments are averaged first: the mean of the shares' gradients differs by far more than 1e-5."""
    whole = gradients(make_learner(SMALL))
    shares = torch.stack([gradients(make_learner(SMALL, rank, 2)) for rank in range(2)]).mean(dim=0)
    assert float((whole - shares).norm() / whole.norm()) > 1e-2


@pytest.mark.parametrize("name", RECIPES)
def test_resume_changes_no_bit(name, tmp_path):
    world, dataset, targets = make_data()
    recipe = RECIPES[name]
    fit = lambda run: recipe.fit(dataset, targets, discount=world.discount, seed=3, run=run)  # noqa: E731
    straight = fit(Run())

    class Stop(Exception):
        pass

    shown = []

    def stop_after_two(progress):
        shown.append(progress["step"])
        if len(shown) == 3:
            raise Stop

    run = Run(folder=tmp_path, save_every=0.0, show=stop_after_two)
    with pytest.raises(Stop):
        fit(run)
    resumed = fit(Run(folder=tmp_path, save_every=0.0))
    assert resumed.metrics == straight.metrics
    for key, value in straight.tensors().items():
        assert np.array_equal(value, resumed.tensors()[key]), key


def test_same_seed_same_bits_and_another_seed_differs():
    world, dataset, targets = make_data()
    fits = [
        SMALL.fit(dataset, targets, discount=world.discount, seed=seed, run=Run()).tensors()
        for seed in (1, 1, 2)
    ]
    assert all(np.array_equal(fits[0][key], fits[1][key]) for key in fits[0])
    assert not np.array_equal(fits[0]["head.mlp.0.weight"], fits[2]["head.mlp.0.weight"])


def test_global_generators_are_left_alone():
    world, dataset, targets = make_data()
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    SMALL.fit(dataset, targets, discount=world.discount, seed=1, run=Run())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


def test_saved_features_are_the_same_features():
    world, dataset, targets = make_data()
    fitted = SMALL.fit(dataset, targets, discount=world.discount, seed=1, run=Run())
    again = restore(fitted.spec(), fitted.tensors())
    z = fitted.encode(dataset.observe(np.arange(10)))
    actions = dataset.action_matrix(dataset.actions[:10])
    assert np.array_equal(fitted.features(z, actions), again.features(z, actions))
    assert fitted.features(z, actions).shape == (10, 8) and np.all(fitted.features(z, actions)[:, -1] == 1.0)


def test_several_policies_share_one_phi():
    world, dataset, targets = make_data()
    pair = [targets[0], target_actions(dataset, world.behaviour, num_samples=3)]
    fitted = SMALL.fit(dataset, pair, discount=world.discount, seed=1, run=Run())
    assert np.isfinite(fitted.metrics["loss"]).all()
    assert not np.array_equal(
        fitted.tensors()["head.mlp.0.weight"],
        SMALL.fit(dataset, targets, discount=world.discount, seed=1, run=Run()).tensors()[
            "head.mlp.0.weight"
        ],
    )


def test_terminations_are_masked():
    """phi' after the end must not be looked at: changing the observation there changes nothing."""
    world = random_tabular(seed=0)
    dataset = world.dataset(30, 20, 0)
    assert dataset.terminated.any()
    ends = dataset.rows[dataset.terminated] + 1
    changed = {key: value.copy() for key, value in dataset.observations.items()}
    for value in changed.values():
        value[ends] = value[ends][:, ::-1]
    other = dataclasses.replace(dataset, observations=changed)
    # The encoder's mean and deviation see all observations; a permutation of columns at the ends would move
    # them.
    weights = []
    targets = [target_actions(dataset, world.target)]
    for data in (dataset, other):
        recipe = dataclasses.replace(SMALL, dim=6, batch_size=128)
        learner = make_learner(recipe, data=(data, targets), standardised_by=dataset)
        learner.step()
        weights.append(learner.net.head.tensors()["mlp.0.weight"])
    np.testing.assert_allclose(weights[0], weights[1], atol=1e-7)


def test_batches_cover_everything_and_share_observations():
    _, dataset, targets = make_data()
    encoder = encoder_for(dataset, generator=torch.Generator().manual_seed(0))
    batches = make_batches(dataset, targets, encoder, batch_size=50, run_length=5)
    order = batches._order(0)
    assert np.array_equal(np.sort(order), np.arange(len(dataset)))
    assert not np.array_equal(order, batches._order(1))
    neighbours = (np.diff(order) == 1).mean()
    assert 0.6 < neighbours < 0.85  # runs of 5, some cut short at episode ends
    batch = batches.at(0)[0]
    chosen = order[:50]
    np.testing.assert_allclose(batch.rewards.numpy(), dataset.rewards[chosen])
    z, z_next = batch.encode(encoder)
    state = next(iter(dataset.observations))
    expected = encoder(encoder.read({state: dataset.observations[state][dataset.rows[chosen] + 1]}))
    torch.testing.assert_close(z_next, expected)
    torch.testing.assert_close(
        z, encoder(encoder.read({state: dataset.observations[state][dataset.rows[chosen]]}))
    )
