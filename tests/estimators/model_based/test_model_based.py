"""Model-based evaluation against exact worlds, and the timing mistakes that models of this kind are prone
to.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bcrl.errors import BadInput
from bcrl.estimators.model_based import Dreamer, ModelBased, OneStep, restore
from bcrl.estimators.model_based.dreamer import DreamerModel
from bcrl.estimators.model_based.imagine import Plan, rollouts
from bcrl.estimators.model_based.one_step import OneStepModel
from bcrl.estimators.model_based.scales import unstandardise
from bcrl.methods import parse_method
from bcrl.question import starts_of
from bcrl.training import Run
from bcrl_bench.asking import ask, ask_one
from bcrl_bench.worlds import bandit, chain, lqr, pixel_lqr, random_tabular

QUICK = ModelBased(one_step=OneStep(steps=400, hidden=64), num_rollouts=400)
TINY = Dreamer(
    deter=16, hidden=16, stoch=4, classes=4, cnn_depth=4, head_hidden=16, batch_size=4, length=8
)  # fmt: skip


def tiny(steps, **options):
    """A method with a recurrent model that takes no time."""
    return ModelBased(dreamer=replace(TINY, steps=steps), num_rollouts=16, **options)


@pytest.fixture(scope="module")
def dataset(world):
    return world.dataset(400, 30, 0)


@pytest.fixture(scope="module")
def estimate(world, dataset):
    return ask_one(QUICK, dataset, world.target, world.discount)


def planned(estimate, **changes):
    """The estimate's value function with another plan."""
    function = estimate.value_function
    return replace(function, plan=replace(function.plan, **changes))


def test_a_world_that_ends(world, estimate):
    assert estimate.value == pytest.approx(world.value, rel=0.08)
    assert estimate.per_start.shape == (400,) and estimate.stats["reward_r2"] > 0.7
    assert estimate.interval is None
    spread = estimate.per_start.std(ddof=1) / np.sqrt(400)
    assert estimate.stats["rollout_error"] == pytest.approx(spread)


def test_actions_that_nobody_logged_are_distrusted(estimate):
    """A policy whose actions are logged, and one that always does what was never tried."""
    assert next(c for c in estimate.checks if c.name == "action support").verdict == "trust"
    world = lqr()
    data = world.dataset(60, 20, 0)
    shape = data.actions.shape[1:]
    far = SimpleNamespace(reads=None, act=lambda seen: np.full((len(seen), *shape), 9.0, dtype=np.float32))
    wild = ask_one(replace(QUICK, one_step=OneStep(steps=20)), data, far, world.discount)
    assert wild.stats["action_support"] < 0.05 and wild.verdict == "distrust"


def test_frames_are_imagined_less_often_than_vectors():
    """A pixel policy's rollouts decode and look at every frame."""
    data = pixel_lqr().dataset(2, 3, 0)
    assert ModelBased()._num_rollouts(data, pixel_policy()) == 128
    assert ModelBased()._num_rollouts(data, pixel_lqr().target) == 1024
    assert ModelBased(imagination="latent")._num_rollouts(data, pixel_policy()) == 1024
    assert ModelBased(num_rollouts=7)._num_rollouts(data, pixel_policy()) == 7


@pytest.mark.parametrize(("discount", "horizon"), [(1.0, 1), (1.0, 4), (0.0, None)])
def test_horizons_and_no_discount(world, dataset, estimate, discount, horizon):
    function = planned(estimate, discount=discount, horizon=horizon, samples=10)
    exact = world.horizon_value(1 if horizon is None else horizon, discount)
    assert function.value(dataset.start_observations()).mean() == pytest.approx(exact, rel=0.05)


def test_the_last_reward_counts():
    """Every episode of a bandit ends at once: a model that drops the reward of the ending step earns
    nothing.
    """
    world = bandit()
    data = world.dataset(3000, 1, 0)
    estimate = ask_one(QUICK, data, world.target, 0.9)
    assert estimate.value == pytest.approx(world.value, abs=0.15)


def test_truncation_is_no_end():
    ring = chain()
    estimate = ask_one(QUICK, ring.dataset(200, 6, 0), ring.target, ring.discount)
    assert estimate.value == pytest.approx(ring.value, rel=0.05)


def test_a_dropped_mask_turns_it_red(world, dataset):
    blind = replace(dataset, terminated=np.zeros_like(dataset.terminated))
    estimate = ask_one(QUICK, blind, world.target, world.discount)
    assert estimate.value > 1.15 * world.value


def test_swapped_observations_turn_it_red(dataset, world):
    seen = dataset.observations["observation"]
    spans = zip(dataset.start_rows, dataset.lengths, strict=True)
    backwards = np.concatenate([seen[r : r + t + 1][::-1] for r, t in spans])
    swapped = replace(dataset, observations={"observation": backwards})
    estimate = ask_one(QUICK, swapped, world.target, world.discount, starts=starts_of(dataset))
    assert abs(estimate.value / world.value - 1.0) > 0.08


def test_the_policy_acts_where_the_model_stands(dataset, estimate, monkeypatch):
    """pi(s) in place of pi(s'): the model goes on showing the first observation."""
    states = []

    def stuck(self, state, keys, template):
        states.append(state)
        return unstandardise(self.encoder, states[0], template)

    monkeypatch.setattr(OneStepModel, "show", stuck)
    wrong = estimate.value_function.value(dataset.start_observations()).mean()
    assert abs(wrong / estimate.value - 1.0) > 0.05


def test_value_at_other_states_and_saving(world, estimate):
    states = world.codes.astype(np.float32)
    function = planned(estimate, samples=300)
    values = function.value({"observation": states})
    assert np.abs(values / world.values - 1.0).mean() < 0.1
    again = restore(function.spec(), function.tensors(), template=function.template, policy=function.policy)
    np.testing.assert_array_equal(again.value({"observation": states}), values)


def test_unordered_transitions_will_do_for_the_one_step_model(world, dataset):
    loose = replace(dataset, ordered=False, given_starts=dataset.start_observations())
    estimate = ask_one(QUICK, loose, world.target, world.discount)
    assert estimate.value == pytest.approx(world.value, rel=0.08)
    with pytest.raises(BadInput, match="unordered"):
        ask_one(replace(QUICK, dynamics="dreamer"), loose, world.target, world.discount)


def test_refusals_are_one_line():
    pixels = pixel_lqr()
    data = pixels.dataset(4, 5, 0)
    with pytest.raises(BadInput, match="one_step"):
        ask_one(ModelBased(dynamics="one_step"), data, pixels.target, 0.9)
    with pytest.raises(BadInput, match="latent"):
        ask_one(
            ModelBased(dynamics="one_step", imagination="latent", reads="state"), data, pixels.target, 0.9
        )
    with pytest.raises(BadInput, match="dynamics='rssm'; expected one of 'auto', 'dreamer', 'one_step'"):
        ask_one(ModelBased(dynamics="rssm"), data, pixels.target, 0.9)
    with pytest.raises(BadInput, match="no finite value without an end"):
        ask_one(ModelBased(), data, pixels.target, 1.0)

    class OfPixels:
        reads = "pixels"

        def act(self, seen):
            return np.zeros((len(seen), 2))

    with pytest.raises(BadInput, match="reads 'pixels'"):
        ask_one(ModelBased(reads="state", one_step=OneStep(steps=2)), data, OfPixels(), 0.9)


def test_imagined_time_discounts_the_first_reward_by_one():
    class Steps:
        keys = ()

        def first_state(self, observations, generator):
            return 0

        def show(self, state, keys, template):
            return {}

        def vector(self, state):
            return torch.full((2, 1), float(state))

        def advance(self, state, actions, generator):
            return state + 1, torch.full((2,), float(state + 1)), torch.full((2,), 0.5)

    actor = SimpleNamespace(reads=(), act=lambda state, seen: torch.zeros(2, 1))
    plan = Plan(discount=0.5, horizon=3, samples=1, seed=0)
    played = rollouts(Steps(), None, actor, {"x": np.zeros((2, 1))}, plan, torch.Generator())
    np.testing.assert_allclose(played.per_start, 1.0 + 0.25 * 2.0 + 0.0625 * 3.0)
    steps = [
        Plan(discount, horizon, 1, 0).steps for discount, horizon in ((0.0, None), (0.99, None), (0.99, 7))
    ]
    assert steps == [1, 688, 7]


def pixel_policy():
    class OfFrames:
        reads = "pixels"

        def act(self, stacks):
            assert stacks.dtype == np.uint8 and stacks.shape[1:] == (32, 32, 2)
            middle = stacks[..., -1].astype(np.float64).mean(axis=(1, 2))
            return np.stack([middle, -middle], axis=1) / 255.0

    return OfFrames()


@pytest.mark.parametrize("imagination", ["policy", "latent"])
def test_pixels_end_to_end(imagination):
    pixels = pixel_lqr()
    data = pixels.dataset(6, 20, 0)
    method = tiny(3, imagination=imagination)
    given = {"discount": 0.5, "horizon": None, "starts": starts_of(data), "seed": 0, "run": Run()}
    estimates = ask(method, data, {"frames": pixel_policy(), "state": pixels.target}, **given)
    assert all(np.isfinite(e.value) and e.verdict == "distrust" for e in estimates.values())
    latent = imagination == "latent"
    assert estimates["state"].stats["privileged"] == float(not latent)
    assert estimates["frames"].stats["privileged"] == 0.0
    assert ("distilled_error" in estimates["frames"].stats) == latent
    rows = estimates["frames"].provenance["pictures"][0]["rows"]
    assert [row["label"] for row in rows] == ["real", "predicted"] and len(rows[0]["frames"]) == 8
    function = estimates["state"].value_function
    again = restore(function.spec(), function.tensors(), template=function.template, policy=function.policy)
    starts = data.start_observations()
    np.testing.assert_array_equal(again.value(starts), function.value(starts))


def test_a_log_of_frames_alone_is_searched_for_the_policys_actions_a_few_frames_at_a_time(monkeypatch):
    data = pixel_lqr().dataset(30, 20, 0)
    frames = replace(
        data, observations={key: data.observations[key] for key in data.pixel_keys}, single=False
    )
    asked, first_state = [], DreamerModel.first_state

    def counted(self, observations, generator):
        asked.append(len(observations["pixels"]))
        return first_state(self, observations, generator)

    monkeypatch.setattr(DreamerModel, "first_state", counted)
    given = {"discount": 0.5, "horizon": None, "starts": starts_of(frames), "seed": 0, "run": Run()}
    estimate = ask(tiny(2), frames, {"frames": pixel_policy()}, **given)["frames"]
    assert "action support" in {check.name for check in estimate.checks}
    assert asked[-2:] == [512, 118] and max(asked) <= 512


@pytest.mark.parametrize("dynamics", ["one_step", "dreamer"])
def test_killed_and_resumed_equals_never_stopped(world, tmp_path: Path, dynamics):
    data = world.dataset(30, 10, 0)
    method = tiny(100, dynamics=dynamics, one_step=OneStep(steps=100, hidden=16))
    unbroken = ask_one(method, data, world.target, 0.9, seed=3)

    class Killed(Exception):
        pass

    def kill(shown):
        if shown["step"] >= 100:
            raise Killed

    with pytest.raises(Killed):
        ask_one(method, data, world.target, 0.9, seed=3, run=Run(folder=tmp_path, show=kill, save_every=0.0))
    assert list(tmp_path.rglob("checkpoint.pt"))
    resumed = ask_one(method, data, world.target, 0.9, seed=3, run=Run(folder=tmp_path, save_every=0.0))
    assert resumed.value == unbroken.value and resumed.curves == unbroken.curves
    assert ask_one(method, data, world.target, 0.9, seed=4).value != unbroken.value


def test_dreamer_s_own_sizes():
    sizes = ModelBased.dreamerv2().dreamer
    assert (sizes.stoch, sizes.classes, sizes.deter, sizes.cnn_depth) == (32, 32, 200, 48)
    assert (sizes.batch_size, sizes.length, sizes.lr, sizes.image_noise) == (16, 50, 3e-4, 1.0)


@pytest.mark.parametrize(
    "text",
    [
        "ModelBased()",
        "ModelBased(dreamer=Dreamer(steps=200))",
        "ModelBased(dynamics='one_step', reads='state', one_step=OneStep(layers=3))",
        repr(ModelBased.dreamerv2(steps=7)),
    ],
)
def test_the_text_of_a_recipe_makes_it_again(text):
    assert repr(parse_method(text)) == text
    assert parse_method("ModelBased.dreamerv2(steps=7)") == ModelBased.dreamerv2(steps=7)
    with pytest.raises(BadInput, match="part of a method"):
        parse_method("Dreamer(steps=200)")


def median_error(world, method, num, length, seeds=5):
    errors = []
    for seed in range(seeds):
        data = world.dataset(num, length, seed)
        errors.append(
            abs(ask_one(method, data, world.target, world.discount, seed=seed).value / world.value - 1.0)
        )
    return float(np.median(errors))


@pytest.mark.slow
@pytest.mark.parametrize("make", [random_tabular, lqr])
def test_median_error_on_vectors(make):
    assert median_error(make(), ModelBased(), 300, 30) < 0.10


@pytest.mark.slow
def test_error_on_pixels():
    """One seed, three minutes; five of them by bcrl_bench.studies.rival_worlds."""
    assert median_error(pixel_lqr(), ModelBased(), 300, 30, seeds=1) < 0.15
