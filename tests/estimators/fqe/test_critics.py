"""The batched critics: their gradient, their independence, their first weights."""

import pytest
import torch

from bcrl.estimators.fqe.critics import Critics


def made(members, widths, seed=0, kind="torch"):
    return Critics(members, widths).initialise(kind, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("widths", [(5, 3), (5, 16, 1), (5, 16, 8, 2)])
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


def test_first_weights_follow_their_sources():
    torch_like = made(1, (16, 256, 1))
    assert 0.9 / 4 < float(torch_like.layers[0][0].abs().max()) <= 1 / 4
    assert float(torch_like.layers[0][1].abs().max()) > 0.0
    dope = made(1, (16, 256, 1), kind="dope")
    assert float(dope.layers[0][0].abs().max()) <= (0.999 / 16) ** 0.5
    assert 0.8 * (0.03 / 256) ** 0.5 < float(dope.layers[1][0].abs().max()) <= (0.03 / 256) ** 0.5
    assert not any(bias.any() for _, bias in dope.layers)
