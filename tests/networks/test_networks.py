"""Networks: shapes for any image, plain-array round trips, and randomness from the passed generator only."""

import dataclasses

import numpy as np
import pytest
import torch

from bcrl.data.dataset import Dataset
from bcrl.errors import BadInput
from bcrl.estimators.fqe import FQE
from bcrl.estimators.fqe.learner import FQELearner
from bcrl.networks import STRIDES, Encoder, Head, HeadNet, Pixels, encoder_for, random_shift
from bcrl.policies.policy import TargetActions
from bcrl.question import Question
from bcrl.representations.bellman_complete import BellmanComplete
from bcrl.representations.curl import CURL
from bcrl.representations.spr import SPR
from bcrl.training import Run


def make_dataset(side: int = 20, stack: int = 1) -> Dataset:
    rng = np.random.default_rng(0)
    n, episodes = 12, 2
    return Dataset(
        observations={
            "pixels": rng.integers(0, 256, (n + episodes, side, side, 3), dtype=np.uint8),
            "state": np.stack([rng.normal(5.0, 3.0, n + episodes), np.full(n + episodes, 7.0)], axis=1),
        },
        actions=rng.normal(size=(n, 2)),
        rewards=rng.normal(size=n),
        terminated=np.zeros(n, dtype=bool),
        truncated=np.zeros(n, dtype=bool),
        offsets=np.array([0, 5, 12]),
        stack=stack,
    )


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("side", [8, 16, 33, 64, 84])
@pytest.mark.parametrize("conv_layers", [4, 5])
def test_any_image_size(side, conv_layers):
    dataset = make_dataset(side, stack=3)
    encoder = encoder_for(dataset, pixels=Pixels(conv_layers=conv_layers), generator=seeded())
    z = encoder(encoder.read(dataset.observe(np.arange(4))))
    assert z.shape == (4, 50) and encoder.z_dim == 50 and encoder.keys == ("pixels",)
    assert z.abs().max() < 1.0 and z.std() > 0.01


def test_paper_sizes():
    convolutions = encoder_for(
        make_dataset(84, stack=3), pixels=Pixels(conv_layers=4), generator=seeded()
    ).parts[0]
    assert convolutions.trunk[0].in_features == 39200  # 32 x 35 x 35, as in the released code


TINY = {"steps": 1, "dim": 4, "batch_size": 8, "evaluations": 1}


@pytest.mark.parametrize(
    ("make", "own"), [(BellmanComplete, {"epochs": None}), (CURL, {}), (SPR, {"jumps": 1})]
)
def test_all_methods_have_one_encoder_and_the_published_ones_the_papers(make, own):
    def strides(recipe, side):
        parts = {"head": Head(hidden=4), "pixels": dataclasses.replace(recipe.pixels, channels=2)}
        tiny = dataclasses.replace(recipe, **TINY, **parts, **own)
        targets = [TargetActions(np.zeros((14, 1, 2), np.float32), np.ones((14, 1)))]
        fitted = tiny.fit(make_dataset(side), targets, discount=0.9, seed=0, run=Run(device="cpu"))
        return fitted.net.encoder.parts[0].strides

    assert strides(make(), 64) == STRIDES
    assert strides(make.paper(), 84) == (2, 1, 1, 1, 1)


class Still:
    reads = None

    def act(self, observations):
        return np.zeros((len(observations["state"]), 2))


def test_fqe_has_that_encoder_too():
    def strides(recipe):
        tiny = dataclasses.replace(
            recipe, hidden=(4,), batch_size=8, pixels=dataclasses.replace(recipe.pixels, channels=2)
        )
        question = Question.of(make_dataset(64), {"still": Still()}, discount=0.9)
        learner = FQELearner.of(tiny, question, question.targets["still"], torch.device("cpu"))
        return learner.online.encoder.parts[0].strides

    assert strides(FQE()) == STRIDES
    assert strides(FQE.dope()) == strides(FQE.d3rlpy()) == (2, 1, 1, 1, 1)


def test_vectors_are_standardised_and_constant_columns_kept():
    dataset = make_dataset()
    encoder = encoder_for(dataset, reads="state", generator=seeded())
    z = encoder(encoder.read(dataset.observe(np.arange(14)))).numpy()
    np.testing.assert_allclose(z[:, 0].mean(), 0.0, atol=1e-5)
    np.testing.assert_allclose(z[:, 0].std(), 1.0, atol=1e-5)
    np.testing.assert_array_equal(z[:, 1], 0.0)


def test_unknown_key_is_refused():
    with pytest.raises(BadInput, match="Did you mean 'pixels'"):
        encoder_for(make_dataset(), reads="pixel", generator=seeded())


def test_round_trip_without_pickle():
    dataset = make_dataset(stack=2)
    encoder = encoder_for(dataset, reads=("pixels", "state"), generator=seeded())
    head = HeadNet(encoder.z_dim, 2, 7, hidden=9, layers=3, activation="elu", generator=seeded())
    observed = dataset.observe(np.arange(6))
    actions = torch.from_numpy(dataset.action_matrix(dataset.actions[:6]))
    again, head_again = (
        Encoder.restore(encoder.spec(), encoder.tensors()),
        HeadNet.restore(head.spec(), head.tensors()),
    )
    before = head(encoder(encoder.read(observed)), actions)
    after = head_again(again(again.read(observed)), actions)
    assert torch.equal(before, after) and before.shape == (6, 7)


def test_only_the_passed_generator_is_used():
    dataset = make_dataset()
    before = torch.get_rng_state()
    one = encoder_for(dataset, generator=seeded(3))
    head = HeadNet(4, 2, 5, generator=seeded(3))
    assert torch.equal(torch.get_rng_state(), before)
    two = encoder_for(dataset, generator=seeded(3))
    other = encoder_for(dataset, generator=seeded(4))
    assert all(
        np.array_equal(a, b) for a, b in zip(one.tensors().values(), two.tensors().values(), strict=True)
    )
    assert any(
        not np.array_equal(a, b)
        for a, b in zip(one.tensors().values(), other.tensors().values(), strict=True)
    )
    weight = head.mlp[0].weight
    torch.testing.assert_close(weight.T @ weight, torch.eye(6), atol=1e-5, rtol=0.0)


def test_random_shift_moves_whole_images():
    pixels = torch.arange(2 * 6 * 6 * 1, dtype=torch.uint8).reshape(2, 6, 6, 1)
    shifted = random_shift(pixels.repeat(20, 1, 1, 1), 2, seeded())
    for image, original in zip(shifted, pixels.repeat(20, 1, 1, 1), strict=True):
        padded = torch.nn.functional.pad(
            original.permute(2, 0, 1)[None].float(), (2, 2, 2, 2), mode="replicate"
        )[0, 0]
        crops = [padded[y : y + 6, x : x + 6] for y in range(5) for x in range(5)]
        assert any(torch.equal(crop, image[:, :, 0].float()) for crop in crops)
    assert len({image.numpy().tobytes() for image in shifted}) > 5
