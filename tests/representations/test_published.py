"""The presets are what the paper's table and the authors' code say (published.toml), field by field, and so
are network and draws (F22, F23, F27).
"""

import dataclasses
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from bcrl.estimators.lspe.method import LSPE
from bcrl.networks import Head, Pixels
from bcrl.representations.augment import Augmentation, learned_rows
from bcrl.representations.bellman_complete import BellmanComplete
from bcrl.representations.bellman_complete.fitting import _batches, _split, network
from bcrl.representations.curl import CURL
from bcrl.representations.features import new_net
from bcrl.representations.spr import SPR
from bcrl.training import generators
from bcrl_bench.speed.bcrl import make_dataset, our_learner
from bcrl_bench.worlds import lqr, pixel_lqr

TABLE = tomllib.loads((Path(__file__).parent / "published.toml").read_text())
PRESETS = {
    "paper": BellmanComplete.paper(),
    "released": BellmanComplete.released(),
    "curl": CURL.paper(),
    "spr": SPR.paper(),
}


def flat(parts, within=""):
    """Nested tables or recipes as `head.layers: 4`."""
    if dataclasses.is_dataclass(parts):
        parts = {field.name: getattr(parts, field.name) for field in dataclasses.fields(parts)}
    out = {}
    for name, value in parts.items():
        nested = dataclasses.is_dataclass(value) or isinstance(value, dict)
        out |= flat(value, f"{within}{name}.") if nested else {f"{within}{name}": value}
    return out


@pytest.mark.parametrize("name", PRESETS)
def test_every_setting_is_the_published_one(name):
    wanted = flat(TABLE[name]["stated"]) | flat(TABLE[name]["unstated"])
    found = flat(PRESETS[name])
    # A part that is None has no fields of its own.
    found |= {
        f"{part}.{field}": None for part in ("design",) if part in found for field in found.pop(part) or ()
    }
    assert set(wanted) == set(found)
    for field, value in wanted.items():
        got = list(found[field]) if isinstance(found[field], tuple) else found[field]
        # "none" is also the name of the norm that nobody applies.
        assert got == value or (value == "none" and got is None), field


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
    assert not np.array_equal(order, batches._order(1)) and batches.batch_size == 64


@pytest.mark.parametrize("name", ["curl", "spr"])
def test_rivals_train_on_all_rows(name):
    """F22, of the rivals: a tenth of the units was kept aside, and on vectors three trainings were made."""
    dataset = lqr().dataset(10, 10, 0)
    _, training = learned_rows(dataset, PRESETS[name], 0)
    assert np.array_equal(training, np.arange(100))
    assert LSPE(PRESETS[name])._repeats(dataset) == 1


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


@pytest.mark.parametrize(("name", "convolutions", "linear"), [("paper", 5, 4), ("released", 4, 2)])
def test_the_network_is_that_of_the_text(name, convolutions, linear):
    """32 convolutions 3x3, strides 2, 1, 1, ...; 50 numbers, LayerNorm, tanh; ReLU; orthogonal weights."""
    dataset = pixel_lqr().dataset(3, 4, 0)
    net = network(dataclasses.replace(PRESETS[name], dim=16), dataset, generators(0)[1])
    kinds = {kind: [m for m in net.modules() if isinstance(m, kind)] for kind in (nn.Conv2d, nn.Linear)}
    assert [c.stride[0] for c in kinds[nn.Conv2d]] == [2] + [1] * (convolutions - 1)
    assert all(c.kernel_size == (3, 3) and c.out_channels == 32 for c in kinds[nn.Conv2d])
    trunk, *head = kinds[nn.Linear]
    assert trunk.out_features == 50 and len(head) == linear
    with torch.no_grad():
        z = net.encoder(net.encoder.read(dataset.observe(np.arange(5)), torch.device("cpu")))
        phi = net(z, torch.zeros(5, dataset.action_dim))
    assert float(z.abs().max()) < 1.0 and float(phi.min()) == 0.0  # tanh, the last ReLU
    for layer in [trunk, *head]:
        small = layer.weight if len(layer.weight) <= layer.weight.shape[1] else layer.weight.T
        assert torch.allclose(small @ small.T, torch.eye(len(small)), atol=1e-4)


def test_curl_crops_where_the_paper_crops():
    """F23: it shifted. Vectors have nothing to crop, and the preset still serves them."""
    dataset = pixel_lqr().dataset(3, 4, 0)
    small = dataclasses.replace(CURL.paper(), crop=20, pixels=Pixels(feature_dim=8), head=Head(16, 2))
    (key,) = dataset.pixel_keys
    assert min(dataset.observations[key].shape[1:3]) > 20
    seen = dataclasses.replace(small, reads=small._renders(dataset))
    net = new_net(dataset, 16, seen, activation="relu", generator=generators(0)[1], crop=small.crop)
    assert net.encoder.spec()["parts"][0]["shape"][:2] == [20, 20]
    assert CURL.paper()._renders(lqr().dataset(2, 3, 0)) is None


def test_spr_changes_the_brightness_of_whole_images():
    images = torch.full((2000, 2, 2, 3), 100, dtype=torch.uint8)
    seen = Augmentation(0, intensity=0.05)({"pixels": images}, torch.Generator().manual_seed(0))["pixels"]
    assert torch.equal(seen.amin(dim=(1, 2, 3)), seen.amax(dim=(1, 2, 3)))
    each = seen[:, 0, 0, 0].double()
    assert float(each.std()) == pytest.approx(5.0, rel=0.1) and float(each.max()) <= 110.0
