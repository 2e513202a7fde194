"""Images move at random while training: the same way however a batch is cut, and never where features are
judged.
"""

import dataclasses

import numpy as np
import torch

from bcrl.networks import Convolutions, Head, Pixels, encoder_for, shifted
from bcrl.policies.policy import target_actions
from bcrl.representations.batches import Batches
from bcrl.representations.bellman_complete import BellmanComplete
from bcrl.training import Run
from bcrl_bench.worlds import pixel_lqr

WORLD = pixel_lqr()
DATA = WORLD.dataset(12, 10, 0)


def batches(shift):
    encoder = encoder_for(
        DATA,
        pixels=Pixels(feature_dim=8, channels=4, strides=(2, 1)),
        generator=torch.Generator().manual_seed(0),
    )
    targets = [target_actions(DATA, WORLD.target)]
    return Batches(
        DATA,
        targets,
        encoder,
        np.arange(len(DATA)),
        batch_size=40,
        run_length=4,
        seed=3,
        shift=shift,
    )


def seen(parts):
    """Images of s and of s', transition after transition."""
    images = [next(iter(part.observations.values())) for part in parts]
    here = torch.cat([image[part.here] for image, part in zip(images, parts, strict=True)])
    there = torch.cat([image[part.there] for image, part in zip(images, parts, strict=True)])
    return torch.cat([here, there])


def test_shift_depends_on_the_step_and_not_on_the_pieces():
    moving, still = batches(2), batches(0)
    whole = seen(moving.at(1))
    assert torch.equal(whole, seen(moving.at(1, 7)))
    assert not torch.equal(whole, seen(still.at(1)))
    assert not torch.equal(seen(moving.at(0)), seen(moving.at(moving.per_epoch)))


def test_judged_transitions_stay_where_they_are():
    chosen = np.arange(10, 30)
    assert torch.equal(seen([batches(2).gather(chosen)]), seen([batches(0).gather(chosen)]))


def test_a_shift_moves_rows_and_columns_and_repeats_the_border():
    image = torch.arange(16, dtype=torch.uint8).reshape(1, 4, 4, 1)
    moved = shifted(image, torch.tensor([[1, -2]]))[0, :, :, 0]
    expected = [[4, 4, 4, 5], [8, 8, 8, 9], [12, 12, 12, 13], [12, 12, 12, 13]]
    assert moved.tolist() == expected


def test_many_images_are_encoded_as_few_are():
    net = Convolutions(
        (16, 16, 3),
        feature_dim=8,
        channels=4,
        strides=(2, 1),
        generator=torch.Generator().manual_seed(0),
    )
    images = torch.randint(
        0, 256, (300, 16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )
    few = torch.cat([net(images[i : i + 50]) for i in range(0, 300, 50)])
    torch.testing.assert_close(net(images), few, rtol=1e-5, atol=1e-6)


def test_training_moves_images_and_judging_does_not():
    """One step of length nought: weights, and so held-out figures, are the same; another, of some length, is
    not.
    """
    small = BellmanComplete(dim=6, head=Head(hidden=8), batch_size=64, steps=1, evaluations=1)
    targets = [target_actions(DATA, WORLD.target)]

    def fit(shift, **changes):
        pixels = Pixels(feature_dim=4, channels=2, shift=shift)
        recipe = dataclasses.replace(small, pixels=pixels, **changes)
        return recipe.fit(DATA, targets, discount=0.9, seed=0, run=Run())

    still, moved = (fit(lr=0.0, shift=shift).metrics for shift in (0, 3))
    assert still["held_out/eps_rel"] == moved["held_out/eps_rel"]
    weights = [fit(shift=shift).tensors() for shift in (0, 2)]
    assert any(not np.array_equal(weights[0][name], weights[1][name]) for name in weights[0])
