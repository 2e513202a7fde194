"""The default on worlds with exact values; five seeds of each by bcrl_bench/studies/exact_worlds.py."""

import dataclasses

import numpy as np
import pytest

from bcrl.estimators.lspe.method import LSPE
from bcrl.networks import Head, Pixels
from bcrl.representations.bellman_complete import BellmanComplete, Design
from bcrl_bench.asking import ask
from bcrl_bench.studies import exact_worlds
from bcrl_bench.worlds import pixel_lqr, rich_lqr

SEEDS = (0, 1, 2)


def errors(world, method, seeds=SEEDS):
    """One training each, a third of the default's time."""
    return [abs(exact_worlds.cell(world, seed, method, repeats=1)["error"]) for seed in seeds]


def error_of(world, dataset, recipe, truth):
    estimate = ask(LSPE(recipe), dataset, {"target": world.target}, discount=world.discount)["target"]
    return abs(estimate.value / truth - 1.0)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("world", ["rich_lqr", "low_rank"])
def test_median_error_is_under_three_percent_and_random_features_are_worse(world):
    ours = np.median(errors(world, "bellman_complete"))
    assert ours < 0.03
    assert np.median(errors(world, "random")) > ours


@pytest.mark.slow
def test_without_completeness_the_error_at_least_doubles():
    """Reward and D-design alone, against all terms: same data, same size. Measured: 61 % and 8 %."""
    world = rich_lqr()
    dataset = world.dataset(200, 50, 0)
    truth = world.v(dataset.observations["observation"][dataset.start_rows]).mean()
    short = BellmanComplete(dim=32, head=Head(hidden=128), steps=200, batch_size=1024, evaluations=4)
    design_only = dataclasses.replace(
        short,
        completeness_weight=0.0,
        value_weight=0.0,
        design=Design("D", 0.01),
        head=Head(hidden=128, norm="sphere"),
    )
    ours, theirs = (error_of(world, dataset, recipe, truth) for recipe in (short, design_only))
    assert theirs > 2.0 * ours


@pytest.mark.slow
def test_pixels_within_fifteen_percent():
    """Measured: 3 %; without layer_norm and with 200 episodes of 20 steps it was 18 %."""
    world = pixel_lqr()
    dataset = world.dataset(300, 30, 0)
    truth = world.v({"state": dataset.observations["state"][dataset.start_rows]}).mean()
    recipe = BellmanComplete(
        dim=32,
        pixels=Pixels(conv_layers=3, channels=16),
        head=Head(hidden=128, layer_norm=True),
        batch_size=512,
        steps=120,
        evaluations=2,
    )
    assert error_of(world, dataset, recipe, truth) < 0.15
