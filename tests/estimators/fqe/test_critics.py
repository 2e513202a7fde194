"""The batched critics: their gradient, their independence, their first weights."""

import pytest
import torch

from bcrl.estimators.fqe.critics import Critics


def made(members, widths, seed=0, kind="torch"):
    return Critics(members, widths).initialise(kind, torch.Generator().manual_seed(seed))


# The last is large enough for oneDNN, member by member.
@pytest.mark.parametrize("widths", [(5, 3), (5, 16, 1), (5, 16, 8, 2), (5, 512, 512, 2)])
def test_the_gradient_by_hand_is_the_automatic_one(widths):
    critics = made(3, widths)
    inputs = torch.randn(20, 5, generator=torch.Generator().manual_seed(1))
    slopes = torch.randn(3, 20, widths[-1], generator=torch.Generator().manual_seed(2))
    into = critics.zeros_like()
    _, read = critics.forward(inputs)
    by_hand = critics.backward(read, slopes, into, inputs=True)

    leaf = critics.flat.clone().requires_grad_()
    inputs.requires_grad_()
    automatic = Critics(3, widths)
    out, position = inputs.expand(3, 20, 5), 0
    assert len(critics._groups(20)) == (3 if widths[1] == 512 else 1)
    for number, (weight, bias) in enumerate(automatic.layers):
        parts = []
        for part in (weight, bias):
            parts.append(leaf[position : position + part.numel()].view(part.shape))
            position += part.numel()
        out = (out.relu() if number else out) @ parts[0] + parts[1]
    (out * slopes).sum().backward()
    torch.testing.assert_close(into.flat, leaf.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(by_hand, inputs.grad, rtol=1e-4, atol=1e-4)


def test_members_do_not_see_each_other():
    critics = made(2, (4, 8, 1))
    inputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    before = critics(inputs).clone()
    for weight, bias in critics.layers:
        weight[1] += 1.0
        bias[1] -= 1.0
    after = critics(inputs)
    assert torch.equal(before[0], after[0])
    assert not torch.equal(before[1], after[1])


@pytest.mark.parametrize("hidden", [8, 512])
def test_a_member_is_the_same_whatever_runs_beside_it(hidden):
    few, many = made(2, (4, hidden, hidden, 1)), made(5, (4, hidden, hidden, 1))
    inputs = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
    found = []
    for critics in (few, many):
        outputs, read = critics.forward(inputs)
        into = critics.zeros_like()
        critics.backward(read, outputs, into, inputs=False)
        found.append([outputs[:2], *(part[:2] for layer in into.layers for part in layer)])
    for alone, beside in zip(*found, strict=True):
        assert torch.equal(alone, beside)
    # Members differ, and what draws after them finds the generator in the same state.
    assert not torch.equal(found[0][0][0], found[0][0][1])
    generators = [torch.Generator().manual_seed(3) for _ in range(2)]
    for members, generator in zip((2, 5), generators, strict=True):
        Critics(members, (4, 8, 1)).initialise("torch", generator)
    assert torch.equal(*(torch.rand(3, generator=generator) for generator in generators))


def test_first_weights_follow_their_sources():
    torch_like = made(1, (16, 256, 1))
    assert 0.9 / 4 < float(torch_like.layers[0][0].abs().max()) <= 1 / 4
    assert float(torch_like.layers[0][1].abs().max()) > 0.0
    dope = made(1, (16, 256, 1), kind="dope")
    assert float(dope.layers[0][0].abs().max()) <= (0.999 / 16) ** 0.5
    assert 0.8 * (0.03 / 256) ** 0.5 < float(dope.layers[1][0].abs().max()) <= (0.03 / 256) ** 0.5
    assert not any(bias.any() for _, bias in dope.layers)
