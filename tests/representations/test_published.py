"""The presets are what the paper's table and the authors' code say, field by field, and so are the draws."""

import dataclasses

import numpy as np
import pytest

from bcrl.estimators.lspe.method import LSPE
from bcrl.networks import Head
from bcrl.representations.bellman_complete import BellmanComplete
from bcrl.representations.bellman_complete.fitting import _batches, _split, network
from bcrl.representations.curl import CURL
from bcrl.representations.spr import SPR
from bcrl.training import generators
from bcrl_bench.speed.bcrl import make_dataset, our_learner
from bcrl_bench.worlds import lqr

# The paper's appendix (tab:hyperparam, architecture) and the released cfgs/config.yaml.
SETTINGS = {
    "paper": {
        "dim": 512,
        "lr": 1e-5,
        "inner.lr": 1e-5,
        "inner.alternate": "step",
        "inner.target_tau": 0.005,
        "batch_size": 2048,
        "epochs": 200,
        "design.kind": "D",
        "design.weight": 5e-6,
        "grad_clip": None,
        "head": Head(512, 4, "relu", activate_last=True),
        "pixels.all_strides": (2, 1, 1, 1, 1),
    },
    "released": {
        "dim": 512,
        "lr": 3e-4,
        "inner.lr": 3e-4,
        "inner.alternate": "epoch",
        "inner.target_tau": None,
        "batch_size": 4096,
        "epochs": 10_000,
        "design.kind": "D",
        "design.weight": 1e-6,
        "design.jitter": 1e-8,
        "grad_clip": 1.0,
        "head": Head(512, 2, "relu", activate_last=True),
        "pixels.all_strides": (2, 1, 1, 1),
    },
}
SHARED = {
    "metric": "plain",
    "reward_weight": 1.0,
    "completeness_weight": 1.0,
    "value_weight": 0.0,
    "schedule": "constant",
    "average_tau": None,
    "constant_feature": False,
    "double_sampling": None,
    "running_moments": None,
    "steady": None,
    "pixels.feature_dim": 50,
    "pixels.channels": 32,
    "pixels.shift": None,
    "published": True,
}
PRESETS = {"paper": BellmanComplete.paper(), "released": BellmanComplete.released()}


@pytest.mark.parametrize("name", ["paper", "released"])
def test_every_setting_is_the_published_one(name):
    for field, expected in (SETTINGS[name] | SHARED).items():
        found = PRESETS[name]
        for part in field.split("."):
            found = getattr(found, part)
        assert found == expected, field


@pytest.mark.parametrize("name", ["paper", "released"])
def test_all_rows_are_drawn_one_by_one(name):
    """F22: on pixels runs of 16 were drawn, from nine tenths of the data."""
    dataset = make_dataset()
    recipe = dataclasses.replace(PRESETS[name], dim=16, head=Head(16, 2), batch_size=64)
    held_out, training = _split(recipe, dataset, 0)
    assert np.array_equal(training, np.arange(len(dataset))) and len(held_out) == len(dataset)
    learner = our_learner(dataset, recipe)
    batches = _batches(recipe, dataset, learner.batches.targets, learner.net, training, 0)
    order = batches._order(0)
    assert batches.run_length == 1 and np.array_equal(np.sort(order), np.arange(len(dataset)))
    assert (np.diff(order) == 1).mean() < 0.1


def test_512_features_whatever_the_data_and_one_training():
    dataset = lqr().dataset(30, 20, 0)
    assert network(BellmanComplete.paper(), dataset, generators(0)[1]).dim == 512
    assert LSPE(BellmanComplete.paper())._repeats(dataset) == 1
    assert LSPE()._repeats(dataset) == 3


def test_rivals_have_the_same_network_and_nothing_of_ours():
    """F23: the last ReLU was missing, and SPR compared standardised projections."""
    ours = BellmanComplete.paper()
    for rival in (CURL.paper(), SPR.paper()):
        assert (rival.dim, rival.head, rival.pixels) == (ours.dim, ours.head, ours.pixels)
        assert not rival.constant_feature
    assert not SPR.paper().standardise
    assert CURL.paper().similarity == "uniform" and not CURL.paper().directions
