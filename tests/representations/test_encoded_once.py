"""LSPE's feature extraction encodes every observation once, whatever the number of policies."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from bcrl.estimators.lspe.method import LSPE
from bcrl.networks import Head, Pixels
from bcrl.question import starts_of
from bcrl.representations.bellman_complete import BellmanComplete
from bcrl.representations.features import FittedFeatures
from bcrl.training import Run
from bcrl_bench.asking import ask
from bcrl_bench.worlds import lqr, pixel_lqr

SMALL = BellmanComplete(
    dim=6,
    head=Head(hidden=8),
    batch_size=64,
    steps=2,
    evaluations=1,
    pixels=Pixels(4, conv_layers=1, channels=2),
)


@dataclass(frozen=True, eq=False)
class CountedFeatures(FittedFeatures):
    """The same features; notes how many observations are encoded."""

    counts: list = field(default_factory=list)

    def encode(self, observations):
        self.counts.append(len(next(iter(observations.values()))))
        return super().encode(observations)


@dataclass(frozen=True)
class Counted:
    """Trains `SMALL`; what its features encode afterwards is counted in `counts`."""

    counts: list = field(default_factory=list)

    def fit(self, dataset, targets, *, discount, seed, run):
        fitted = SMALL.fit(dataset, targets, discount=discount, seed=seed, run=run)
        return CountedFeatures(fitted.net, fitted.metrics, self.counts)


def count(world, dataset, *, starts=None, split="none"):
    representation = Counted()
    ask(
        LSPE(representation, split=split, repeats=1),
        dataset,
        {"target": world.target, "behaviour": world.behaviour},
        discount=0.9,
        starts=starts or starts_of(dataset),
    )
    return sum(representation.counts)


@pytest.mark.parametrize("world", [lqr(), pixel_lqr()], ids=["vectors", "pixels"])
def test_every_observation_is_encoded_once(world):
    dataset = world.dataset(12, 10, 0)
    assert count(world, dataset) == len(dataset) + dataset.num_episodes


def test_start_states_from_elsewhere_are_encoded_once_for_all_policies():
    world = lqr()
    dataset = world.dataset(12, 10, 0)
    starts = starts_of(dataset, world.dataset(7, 1, 1).start_observations())
    assert count(world, dataset, starts=starts) == len(dataset) + dataset.num_episodes + 7


def test_cross_fitting_encodes_each_half_once_and_all_starts_twice():
    world = lqr()
    dataset = world.dataset(12, 10, 0)
    assert count(world, dataset, split="cross") == len(dataset) + dataset.num_episodes + 2 * 12


def test_own_starts_give_the_value_of_the_same_states_from_elsewhere():
    """The short cut takes the right rows."""
    world = lqr()
    dataset = world.dataset(12, 10, 0)
    asked = {"discount": 0.9, "horizon": None, "seed": 0, "run": Run()}
    own, given = (
        ask(LSPE(SMALL), dataset, {"t": world.target}, starts=starts, **asked)["t"]
        for starts in (starts_of(dataset), starts_of(dataset, dataset.start_observations()))
    )
    np.testing.assert_allclose(own.per_start, given.per_start, rtol=1e-6)
    assert np.ptp(own.per_start) > 0
