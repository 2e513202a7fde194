"""Parts of the recurrent model: windows of episodes, convolutions, latents and their KL term."""

import numpy as np
import pytest
import torch

from bcrl.estimators.model_based import Dreamer, OneStep
from bcrl.estimators.model_based.images import ImageDecoder, ImageEncoder, sizes_down
from bcrl.estimators.model_based.rssm import balanced_kl, draw
from bcrl.estimators.model_based.windows import cut_windows, mean_actions
from bcrl_bench.worlds import chain


def test_rewards_are_paid_on_arrival():
    """The window's reward t is that of the action which led to observation t; episodes are not mixed."""
    ring = chain()
    data = ring.dataset(3, 6, 0)
    none = mean_actions(data, [])
    batch = cut_windows(data, np.array([7, 10]), np.array([1, 1]), 6, none, ["observation"])
    led = np.array([6, 7, 8, 9, 10])
    np.testing.assert_allclose(batch.rewards[0, 1:].numpy(), data.rewards[led].astype(np.float32))
    np.testing.assert_allclose(batch.actions[0, 1:].numpy(), data.action_matrix(data.actions[led]))
    assert batch.valid.tolist() == [[1.0] * 6, [1.0] * 4 + [0.0] * 2]
    seen = batch.observations["observation"].view(2, 6, -1).argmax(dim=2)
    assert seen[0].tolist() == [0, 1, 2, 3, 4, 5] and seen[1, :4].tolist() == [3, 4, 5, 0]


@pytest.mark.parametrize("side", [5, 16, 32, 64, 84])
def test_images_come_back_at_their_own_size(side):
    generator = torch.Generator().manual_seed(0)
    shape = (side, side + 1, 3)
    eye = ImageEncoder(shape, 4, generator)
    screen = ImageDecoder(eye.embed_dim, shape, 4, generator)
    pixels = torch.zeros((2, *shape), dtype=torch.uint8)
    assert screen(eye(pixels)).shape == (2, *shape)
    assert sizes_down(64) == [64, 31, 14, 6, 2]


def test_draws_follow_the_logits_and_pass_gradients_through():
    generator = torch.Generator().manual_seed(0)
    logits = torch.log(torch.tensor([[[0.2, 0.8]]])).repeat(20000, 1, 1).requires_grad_()
    sample = draw(logits, generator)
    assert sample.detach()[:, 1].mean() == pytest.approx(0.8, abs=0.02)
    sample[:, 1].sum().backward()
    # d softmax_1 / d logit_1 = p (1 - p), whatever was drawn.
    assert logits.grad[:, 0, 1].numpy() == pytest.approx(0.16, abs=1e-3)


def test_kl_is_balanced_and_partly_free():
    post = torch.log(torch.tensor([[[0.9, 0.1]]])).requires_grad_()
    prior = torch.log(torch.tensor([[[0.5, 0.5]]])).requires_grad_()
    exact = 0.9 * np.log(0.9 / 0.5) + 0.1 * np.log(0.1 / 0.5)
    value = balanced_kl(post, prior, torch.ones(1), balance=0.8, free=0.0)
    assert float(value.detach()) == pytest.approx(exact, rel=1e-5)
    value.backward()
    balanced = balanced_kl(
        post.detach(), prior.detach().requires_grad_(), torch.ones(1), balance=0.8, free=1.0
    )
    assert float(balanced.detach()) == pytest.approx(1.0)
    assert prior.grad.abs().sum() > post.grad.abs().sum()


def test_the_rate_falls_by_a_half_cosine_unless_it_is_told_to_stay():
    for settings in (Dreamer(lr=1.0), OneStep(lr=1.0)):
        assert [settings.rate(done, 4) for done in (0, 2, 4)] == pytest.approx([1.0, 0.5, 0.0])
    assert Dreamer(lr=1.0, cosine=False).rate(3, 4) == 1.0
