"""Our released mode is the released objective: the same number on the same batch with the same weights."""

import dataclasses

import numpy as np
import pytest
import torch

from bcrl.representations.bellman_complete import BellmanComplete, Design, GradientSteps
from bcrl_bench.speed.bcrl import make_dataset, our_learner
from bcrl_bench.speed.reference.released import Phi, loss

DIM = 16


def head(hidden):
    return dataclasses.replace(BellmanComplete.released().head, hidden=hidden)


def copy_weights(net, reference):
    """Ours into the reference's modules; ours flattens the maps with the channels last."""
    convolutions = net.encoder.parts[0]
    reference.encoder.convnet.load_state_dict(convolutions.convolutions.state_dict())
    trunk = convolutions.trunk.state_dict()
    side = int(np.sqrt(trunk["0.weight"].shape[1] / 32))
    trunk["0.weight"] = trunk["0.weight"].reshape(-1, side, side, 32).permute(0, 3, 1, 2).reshape(50, -1)
    reference.encoder.trunk.load_state_dict(trunk)
    reference.mlp.load_state_dict(net.head.mlp.state_dict())


@pytest.mark.parametrize("mixture", [False, True])
def test_loss_equals_the_reference(mixture):
    dataset = make_dataset()
    recipe = dataclasses.replace(
        BellmanComplete.released(mixture=mixture), dim=DIM, head=head(DIM), batch_size=64, chunk=None
    )
    learner = our_learner(dataset, recipe)
    # Features start at a tiny scale; a few times larger ones make every term count.
    with torch.no_grad():
        learner.net.head.mlp[-2].weight.mul_(30.0)
    reference = Phi(9, 84, 6, DIM, conv_layers=4, layers=2)
    copy_weights(learner.net, reference)
    learner.done = learner.batches.per_epoch  # the phi epoch
    transitions = learner.batches._order(1)[:64]
    stacks = [dataset.observe(dataset.rows[transitions] + step)["pixels"] for step in (0, 1)]
    s, s2 = (torch.from_numpy(stack.transpose(0, 3, 1, 2).copy()) for stack in stacks)
    with torch.no_grad():
        phi = reference(s, torch.from_numpy(dataset.actions[transitions]))
        ahead = reference(s2, torch.zeros(64, 6))
        expected = loss(
            phi.double(),
            ahead.double(),
            learner.inner.m[0],
            learner.inner.rho,
            torch.from_numpy(dataset.rewards[transitions]),
            0.99,
            0.0 if recipe.design is None else recipe.design.weight,
        )
    terms = learner.step()
    assert float(terms["loss"]) == pytest.approx(float(expected), rel=1e-5)
    assert float(terms["completeness"]) > 1e-3
    assert ("design" in terms) != mixture


def test_presets_say_what_the_paper_says():
    paper, released = BellmanComplete.paper(), BellmanComplete.released()
    assert (paper.dim, paper.lr, paper.batch_size, paper.epochs) == (512, 1e-5, 2048, 200)
    assert paper.inner == GradientSteps(lr=1e-5, target_tau=0.005) and paper.design == Design("D", 5e-6)
    assert (paper.pixels.conv_layers, paper.head.layers, paper.metric) == (5, 4, "plain")
    assert (released.pixels.conv_layers, released.head.layers) == (4, 2)
    assert (released.lr, released.batch_size, released.grad_clip) == (3e-4, 4096, 1.0)
    assert released.inner == GradientSteps(lr=3e-4, alternate="epoch")
    assert released.design == Design("D", 1e-6)
    assert not paper.constant_feature and not released.constant_feature and paper.value_weight == 0.0


def test_the_released_schedule_takes_turns():
    recipe = dataclasses.replace(BellmanComplete.released(), dim=8, head=head(8), batch_size=64, chunk=None)
    learner = our_learner(make_dataset(), recipe)
    epoch = learner.batches.per_epoch
    weights = [p.clone() for p in learner.net.parameters()]
    m = learner.inner.m.detach().clone()
    learner.step()
    assert all(torch.equal(a, b) for a, b in zip(weights, learner.net.parameters(), strict=True))
    assert not torch.equal(m, learner.inner.m)
    m, learner.done = learner.inner.m.detach().clone(), epoch
    learner.step()
    assert torch.equal(m, learner.inner.m)
    assert not all(torch.equal(a, b) for a, b in zip(weights, learner.net.parameters(), strict=True))
