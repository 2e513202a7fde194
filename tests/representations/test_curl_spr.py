"""CURL and SPR: what each is trained for, on held-out data; what they keep of the state; resuming."""

import dataclasses

import numpy as np
import pytest
import torch

from bcrl.data.dataset import Dataset
from bcrl.data.select import split_units
from bcrl.errors import BadInput
from bcrl.estimators.lspe.method import LSPE
from bcrl.networks import Head, HeadNet, Pixels, encoder_for
from bcrl.representations.augment import Augmentation, Views, default_shift, random_crop
from bcrl.representations.curl import CURL
from bcrl.representations.features import FeatureNet, restore
from bcrl.representations.spr import SPR, LatentModel, SPRLearner
from bcrl.training import Run, generators
from bcrl_bench.asking import ask
from bcrl_bench.worlds import chain, lqr, pixel_lqr

SMALL = {"head": Head(64, 2), "evaluations": 3, "dim": 32}
PIXELS = Pixels(conv_layers=3, channels=16)


class Killed(Exception):
    pass


def fit(recipe, dataset, run=None, seed=0):
    return recipe.fit(dataset, [], discount=0.9, seed=seed, run=run or Run(device="cpu"))


@pytest.fixture(scope="module")
def vectors():
    return lqr().dataset(100, 20, 0)


@pytest.fixture(scope="module")
def pixels():
    return pixel_lqr().dataset(200, 20, 0)


@pytest.mark.parametrize(
    "recipe", [CURL(steps=30, **SMALL), SPR(steps=30, **SMALL), SPR(steps=30, tau=0.1, **SMALL)]
)
def test_killed_and_resumed_to_the_bit(recipe, vectors, tmp_path):
    def show(progress):
        if progress["step"] >= 20:
            raise Killed

    whole = fit(recipe, vectors)
    run = Run(folder=tmp_path, save_every=0.0, device="cpu")
    with pytest.raises(Killed):
        fit(recipe, vectors, run=dataclasses.replace(run, show=show))
    again = fit(recipe, vectors, run=run)
    assert again.metrics == whole.metrics
    assert all(np.array_equal(again.tensors()[name], value) for name, value in whole.tensors().items())


@pytest.mark.parametrize("recipe", [CURL(steps=20, **SMALL), SPR(steps=20, **SMALL)])
def test_features_have_a_constant_and_survive_saving(recipe, vectors):
    fitted = fit(recipe, vectors)
    rows = vectors.rows[:50]
    actions = vectors.action_matrix(vectors.actions[:50])
    phi = fitted.features(fitted.encode(vectors.observe(rows)), actions)
    assert phi.shape == (50, fitted.dim) == (50, 32)
    assert (phi[:, -1] == 1.0).all()
    loaded = restore(fitted.spec(), fitted.tensors())
    assert np.array_equal(loaded.features(loaded.encode(vectors.observe(rows)), actions), phi)
    plain = fit(dataclasses.replace(recipe, constant_feature=False), vectors)
    assert not (plain.features(plain.encode(vectors.observe(rows)), actions)[:, -1] == 1.0).all()


@pytest.mark.parametrize("recipe", [CURL(steps=20, **SMALL), SPR(steps=20, **SMALL)])
def test_policies_rewards_and_discounts_play_no_part(recipe, vectors):
    other = dataclasses.replace(vectors, rewards=-vectors.rewards)
    first, second = fit(recipe, vectors), recipe.fit(other, [], discount=0.5, seed=0, run=Run(device="cpu"))
    assert all(np.array_equal(second.tensors()[name], value) for name, value in first.tensors().items())


def test_curl_recognises_vectors_it_never_saw(vectors):
    recipe = CURL(
        steps=250, batch_size=64, head=Head(hidden=128), dim=64, noise=0.05, scale=0.05, evaluations=4
    )
    metrics = fit(recipe, vectors).metrics
    assert metrics["held_out_accuracy"][-1] >= 0.8
    assert metrics["held_out_accuracy"][-1] > metrics["accuracy_without_observation"][-1] + 0.1
    assert metrics["held_out_accuracy"][-1] > metrics["accuracy_without_action"][-1] + 0.1


def test_curl_starts_unsaturated_unless_asked(vectors):
    calm = fit(CURL(steps=1, evaluations=1), vectors).metrics["loss"][0]
    harsh = dataclasses.replace(CURL.paper(), steps=1, evaluations=1, batch_size=256)
    assert calm < 6.0
    assert fit(harsh, vectors).metrics["loss"][0] > calm


def test_spr_predicts_vectors_better_than_copying(vectors):
    metrics = fit(
        SPR(steps=200, batch_size=64, head=Head(hidden=128), dim=64, evaluations=4), vectors
    ).metrics
    assert metrics["prediction_error"][-1] < 0.7 * metrics["copy_error"][-1]


def test_spr_windows_stay_inside_their_episode():
    data = chain().dataset(3, 6, 0)
    _, generator = generators(0)
    encoder = encoder_for(data, generator=generator)
    head = HeadNet(encoder.z_dim, 2, 8, hidden=8, layers=2, generator=generator)
    model = LatentModel(FeatureNet(encoder, head, constant=True), 8, generator)
    views = Views(data, encoder)
    learner = SPRLearner(SPR(jumps=4), model, views, np.arange(len(data)), generator)
    window = learner.window(np.array([0, 4, 5, 6]))
    assert window.inside.tolist() == [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]]
    assert window.rows[0].tolist() == [0, 1, 2, 3, 4]
    assert window.rows[1].tolist() == [4, 5, 6, 6, 6]
    assert window.rows[3].tolist() == [7, 8, 9, 10, 11]


def test_spr_refuses_unordered_transitions(vectors):
    with pytest.raises(BadInput, match="SPR reads whole episodes"):
        fit(SPR(steps=1), dataclasses.replace(vectors, ordered=False))


def test_augmentation_of_images_and_vectors():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 255, (5, 12, 12, 3), dtype=torch.uint8)
    cropped = random_crop(images, 8, generator)
    assert cropped.shape == (5, 8, 8, 3)
    spots = [(i, j) for i in range(4) for j in range(4)]
    for one, whole in zip(cropped, images, strict=True):
        assert any(torch.equal(one, whole[i : i + 8, j : j + 8]) for i, j in spots)
    z = torch.ones(1000, 2)
    shaken = Augmentation(0, None, noise=0.0, scale=0.5)(z, generator)
    assert 0.5 <= float(shaken.min()) < 0.6 and 1.4 < float(shaken.max()) <= 1.5
    assert torch.equal(shaken[:, 0], shaken[:, 1])


def test_the_original_crop_needs_a_larger_render(pixels):
    assert default_shift(pixels) == 2
    with pytest.raises(BadInput, match="needs images larger"):
        fit(CURL(crop=84, steps=1), pixels)
    fitted = fit(CURL(crop=24, steps=2, batch_size=16, evaluations=1, pixels=PIXELS), pixels)
    assert fitted.spec()["encoder"]["parts"][0]["shape"][:2] == [24, 24]
    assert fitted.encode(pixels.observe(pixels.rows[:3])).shape == (3, 50)


def test_lspe_reads_them(vectors):
    world = lqr()
    for recipe in (CURL(steps=20, **SMALL), SPR(steps=20, **SMALL)):
        answer = ask(
            LSPE(recipe), vectors, {"target": world.target}, discount=world.discount, run=Run(device="cpu")
        )["target"]
        assert np.isfinite(answer.value) and answer.interval is not None


def probe(z: np.ndarray, dataset: Dataset) -> float:
    """Mean R^2 of the physics state, linear in z, on units that the regression did not see."""
    held, seen = split_units(dataset, 0.3, 1)
    x = np.concatenate([z, np.ones((len(z), 1))], axis=1)
    y = np.asarray(dataset.observations["state"])[dataset.rows]
    weights = np.linalg.solve(
        x[seen].T @ x[seen] + 1e-6 * len(seen) * np.eye(x.shape[1]), x[seen].T @ y[seen]
    )
    error = ((y[held] - x[held] @ weights) ** 2).sum(axis=0)
    return float(np.mean(1.0 - error / ((y[held] - y[held].mean(axis=0)) ** 2).sum(axis=0)))


def untrained_probe(dataset):
    _, generator = generators(0)
    encoder = encoder_for(dataset, generator=generator, pixels=PIXELS)
    with torch.no_grad():
        z = encoder(encoder.read(dataset.observe(dataset.rows))).numpy()
    return probe(z, dataset)


def beats_the_untrained_encoder(fitted, pixels):
    trained, untrained = probe(fitted.encode(pixels.observe(pixels.rows)), pixels), untrained_probe(pixels)
    print({name: series[-1] for name, series in fitted.metrics.items()}, "probe R^2", trained, untrained)
    return trained > untrained


@pytest.mark.slow
def test_curl_on_pixels(pixels):
    fitted = fit(CURL(dim=128, steps=450, batch_size=128, pixels=PIXELS), pixels)
    assert fitted.metrics["held_out_accuracy"][-1] >= 0.9
    assert "accuracy_without_observation" in fitted.metrics
    assert beats_the_untrained_encoder(fitted, pixels)


@pytest.mark.slow
def test_spr_on_pixels(pixels):
    fitted = fit(SPR(dim=128, steps=250, batch_size=64, pixels=PIXELS), pixels)
    assert fitted.metrics["prediction_error"][-1] < fitted.metrics["copy_error"][-1]
    assert beats_the_untrained_encoder(fitted, pixels)
