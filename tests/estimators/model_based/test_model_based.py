"""Model-based evaluation against exact worlds, and the timing mistakes that models of this kind are prone to."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bcrl.data.dataset import Dataset
from bcrl.errors import BadInput
from bcrl.estimators.model_based import ModelBased, restore
from bcrl.estimators.model_based.audit import familiar_share, led_by_the_log, led_check
from bcrl.estimators.model_based.dreamer import WorldModel
from bcrl.estimators.model_based.images import ImageDecoder, ImageEncoder, sizes_down
from bcrl.estimators.model_based.imagine import rollouts, steps_for
from bcrl.estimators.model_based.markov import MarkovModel
from bcrl.estimators.model_based.rssm import balanced_kl, draw
from bcrl.estimators.model_based.sequences import mean_actions, windows
from bcrl.estimators.model_based.vectors import unstandardise
from bcrl.question import starts_of
from bcrl.training import Run
from bcrl_bench.asking import ask
from bcrl_bench.worlds import bandit, chain, lqr, pixel_lqr, random_tabular

QUICK = ModelBased(markov_steps=400, markov_hidden=64, num_rollouts=400)
TINY = {
    "deter": 16, "hidden": 16, "stoch": 4, "classes": 4, "cnn_depth": 4, "head_hidden": 16,
    "batch_size": 4, "length": 8, "num_rollouts": 16,
}  # fmt: skip


def run_it(method, dataset, policy, discount, seed=0, starts=None, run=None, horizon=None):
    starts = starts_of(dataset) if starts is None else starts
    given = {"discount": discount, "horizon": horizon, "seed": seed, "starts": starts}
    return ask(method, dataset, {"t": policy}, **given, run=Run() if run is None else run)["t"]


@pytest.fixture(scope="module")
def world():
    return random_tabular()


@pytest.fixture(scope="module")
def dataset(world):
    return world.dataset(400, 30, 0)


@pytest.fixture(scope="module")
def estimate(world, dataset):
    return run_it(QUICK, dataset, world.target, world.discount)


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
    wild = run_it(replace(QUICK, markov_steps=20), data, far, world.discount)
    assert wild.stats["action_support"] < 0.05 and wild.verdict == "distrust"


def test_frames_are_imagined_less_often_than_vectors():
    """A pixel policy's rollouts decode and look at every frame."""
    data = pixel_lqr().dataset(2, 3, 0)
    assert ModelBased()._rollouts(data, pixel_policy()) == 128
    assert ModelBased()._rollouts(data, pixel_lqr().target) == 1024
    assert ModelBased(imagination="latent")._rollouts(data, pixel_policy()) == 1024
    assert ModelBased(num_rollouts=7)._rollouts(data, pixel_policy()) == 7


@pytest.mark.parametrize(("discount", "horizon"), [(1.0, 1), (1.0, 4), (0.0, None)])
def test_horizons_and_no_discount(world, dataset, estimate, discount, horizon):
    function = replace(estimate.value_function, discount=discount, horizon=horizon, samples=10)
    exact = world.horizon_value(1 if horizon is None else horizon, discount)
    assert function.value(dataset.start_observations()).mean() == pytest.approx(exact, rel=0.05)


def test_the_last_reward_counts():
    """Every episode of a bandit ends at once: a model that drops the reward of the ending step earns nothing."""
    world = bandit()
    data = world.dataset(3000, 1, 0)
    estimate = run_it(QUICK, data, world.target, 0.9)
    assert estimate.value == pytest.approx(world.value, abs=0.15)


def test_truncation_is_no_end():
    ring = chain()
    estimate = run_it(QUICK, ring.dataset(200, 6, 0), ring.target, ring.discount)
    assert estimate.value == pytest.approx(ring.value, rel=0.05)


def test_a_dropped_mask_turns_it_red(world, dataset):
    blind = replace(dataset, terminated=np.zeros_like(dataset.terminated))
    estimate = run_it(QUICK, blind, world.target, world.discount)
    assert estimate.value > 1.15 * world.value


def test_swapped_observations_turn_it_red(dataset, world):
    seen = dataset.observations["observation"]
    spans = zip(dataset.start_rows, dataset.lengths, strict=True)
    backwards = np.concatenate([seen[r : r + t + 1][::-1] for r, t in spans])
    swapped = replace(dataset, observations={"observation": backwards})
    estimate = run_it(QUICK, swapped, world.target, world.discount, starts=starts_of(dataset))
    assert abs(estimate.value / world.value - 1.0) > 0.08


def test_the_policy_acts_where_the_model_stands(dataset, estimate, monkeypatch):
    """pi(s) in place of pi(s'): the model goes on showing the first observation."""
    begun = []

    def stuck(self, state, keys, template):
        begun.append(state)
        return unstandardise(self.encoder, begun[0], template)

    monkeypatch.setattr(MarkovModel, "show", stuck)
    wrong = estimate.value_function.value(dataset.start_observations()).mean()
    assert abs(wrong / estimate.value - 1.0) > 0.05


def test_value_at_other_states_and_saving(world, estimate):
    states = world.codes.astype(np.float32)
    function = replace(estimate.value_function, samples=300)
    values = function.value({"observation": states})
    assert np.abs(values / world.values - 1.0).mean() < 0.1
    again = restore(function.spec(), function.tensors(), template=function.template, policy=function.policy)
    np.testing.assert_array_equal(again.value({"observation": states}), values)


def test_unordered_transitions_will_do_for_the_one_step_model(world, dataset):
    loose = replace(dataset, ordered=False, given_starts=dataset.start_observations())
    estimate = run_it(QUICK, loose, world.target, world.discount)
    assert estimate.value == pytest.approx(world.value, rel=0.08)
    with pytest.raises(BadInput, match="unordered"):
        run_it(replace(QUICK, dynamics="rssm"), loose, world.target, world.discount)


def test_refusals_are_one_line():
    pixels = pixel_lqr()
    data = pixels.dataset(4, 5, 0)
    with pytest.raises(BadInput, match="markov"):
        run_it(ModelBased(dynamics="markov"), data, pixels.target, 0.9)
    with pytest.raises(BadInput, match="latent"):
        run_it(ModelBased(dynamics="markov", imagination="latent", reads="state"), data, pixels.target, 0.9)
    with pytest.raises(BadInput, match="no finite value without an end"):
        run_it(ModelBased(), data, pixels.target, 1.0)

    class OfPixels:
        reads = "pixels"

        def act(self, seen):
            return np.zeros((len(seen), 2))

    with pytest.raises(BadInput, match="reads 'pixels'"):
        run_it(ModelBased(reads="state", markov_steps=2), data, OfPixels(), 0.9)


def test_rewards_are_paid_on_arrival():
    """The window's reward t is that of the action which led to observation t; episodes are not mixed."""
    ring = chain()
    data = ring.dataset(3, 6, 0)
    none = mean_actions(data, [])
    batch = windows(data, np.array([7, 10]), np.array([1, 1]), 6, none, ["observation"])
    led = np.array([6, 7, 8, 9, 10])
    np.testing.assert_allclose(batch.rewards[0, 1:].numpy(), data.rewards[led].astype(np.float32))
    np.testing.assert_allclose(batch.actions[0, 1:].numpy(), data.action_matrix(data.actions[led]))
    assert batch.valid.tolist() == [[1.0] * 6, [1.0] * 4 + [0.0] * 2]
    seen = batch.observations["observation"].view(2, 6, -1).argmax(dim=2)
    assert seen[0].tolist() == [0, 1, 2, 3, 4, 5] and seen[1, :4].tolist() == [3, 4, 5, 0]


def test_imagined_time_discounts_the_first_reward_by_one():
    class Steps:
        keys = ()

        def begin(self, observations, generator):
            return 0

        def show(self, state, keys, template):
            return {}

        def code(self, state):
            return torch.full((2, 1), float(state))

        def advance(self, state, actions, generator):
            return state + 1, torch.full((2,), float(state + 1)), torch.full((2,), 0.5)

    played = rollouts(
        Steps(), None, lambda state, seen: torch.zeros(2, 1), (), {"x": np.zeros((2, 1))},
        discount=0.5, horizon=3, samples=1, generator=torch.Generator(),
    )  # fmt: skip
    np.testing.assert_allclose(played.per_start, 1.0 + 0.25 * 2.0 + 0.0625 * 3.0)
    assert steps_for(0.0, None) == 1 and steps_for(0.99, None) == 688 and steps_for(0.99, 7) == 7


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
    method = ModelBased(steps=3, imagination=imagination, **TINY)
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
    asked, begin = [], WorldModel.begin

    def counted(self, observations, generator):
        asked.append(len(observations["pixels"]))
        return begin(self, observations, generator)

    monkeypatch.setattr(WorldModel, "begin", counted)
    given = {"discount": 0.5, "horizon": None, "starts": starts_of(frames), "seed": 0, "run": Run()}
    estimate = ask(ModelBased(steps=2, **TINY), frames, {"frames": pixel_policy()}, **given)["frames"]
    assert "action support" in {check.name for check in estimate.checks}
    assert asked[-3:] == [256, 256, 118] and max(asked) <= 512


@pytest.mark.parametrize("dynamics", ["markov", "rssm"])
def test_killed_and_resumed_equals_never_stopped(world, tmp_path: Path, dynamics):
    data = world.dataset(30, 10, 0)
    method = ModelBased(dynamics=dynamics, steps=100, markov_steps=100, markov_hidden=16, **TINY)
    whole = run_it(method, data, world.target, 0.9, seed=3)

    class Killed(Exception):
        pass

    def kill(shown):
        if shown["step"] >= 100:
            raise Killed

    with pytest.raises(Killed):
        run_it(method, data, world.target, 0.9, seed=3, run=Run(folder=tmp_path, show=kill, save_every=0.0))
    assert list(tmp_path.rglob("checkpoint.pt"))
    resumed = run_it(method, data, world.target, 0.9, seed=3, run=Run(folder=tmp_path, save_every=0.0))
    assert resumed.value == whole.value and resumed.curves == whole.curves
    assert run_it(method, data, world.target, 0.9, seed=4).value != whole.value


def test_dreamer_s_own_sizes():
    sizes = ModelBased.dreamerv2()
    assert (sizes.stoch, sizes.classes, sizes.deter, sizes.cnn_depth) == (32, 32, 200, 48)
    assert (sizes.batch_size, sizes.length, sizes.lr, sizes.image_noise) == (16, 50, 3e-4, 1.0)


def median_error(world, method, num, length, seeds=5):
    errors = []
    for seed in range(seeds):
        data = world.dataset(num, length, seed)
        errors.append(
            abs(run_it(method, data, world.target, world.discount, seed=seed).value / world.value - 1.0)
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


class Drifting:
    """A model that adds the action to its state and pays what a factor makes of the state."""

    keys = ("observation",)

    def __init__(self, factor):
        self.factor = factor

    def begin(self, observations, generator):
        return torch.from_numpy(np.asarray(observations["observation"], dtype=np.float32))

    def code(self, state):
        return state

    def advance(self, state, actions, generator):
        moved = state + actions
        return moved, self.factor * state[:, 0], torch.ones(len(state))


def steady_walks():
    """Episodes of 40 steps that move up by about 0.1 a step; the reward is the position."""
    generator = np.random.default_rng(0)
    actions = generator.normal(0.1, 0.05, (30, 40, 1)).astype(np.float32)
    places = np.concatenate([np.ones((30, 1, 1)), 1.0 + actions.cumsum(axis=1)], axis=1).astype(np.float32)
    return Dataset.from_episodes(
        {"observations": s, "actions": a, "rewards": s[:-1, 0], "terminated": np.zeros(40, dtype=bool)}
        for s, a in zip(places, actions, strict=True)
    )


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "trust"), (0.75, "caution"), (0.3, "distrust")])
def test_a_model_that_pays_too_little_when_led_by_the_log_is_found_out(factor, verdict):
    found = led_by_the_log(Drifting(factor), steady_walks(), 0.95, torch.Generator(), seed=0)
    assert found[0] / found[2] == pytest.approx(factor - 1.0, abs=1e-5)
    assert led_check(*found).verdict == verdict


class Levelling(Drifting):
    """Pays low places too much and high ones too little."""

    def advance(self, state, actions, generator):
        moved, reward, going = super().advance(state, actions, generator)
        return moved, reward + torch.where(state[:, 0] < 8.0, 3.0, -3.0), going


def test_errors_that_cancel_between_logging_policies_are_found_at_each_ones_starts():
    low = steady_walks()
    both = Dataset.from_episodes(
        {
            "observations": low.observations["observation"][41 * e : 41 * e + 41] + lift,
            "actions": low.actions[40 * e : 40 * e + 40],
            "rewards": low.rewards[40 * e : 40 * e + 40] + lift,
            "terminated": np.zeros(40, dtype=bool),
            "behaviour": name,
        }
        for name, lift in (("low", 0.0), ("high", 10.0))
        for e in range(30)
    )
    unlabelled = replace(both, behaviour=None)
    verdicts = [
        led_check(*led_by_the_log(Levelling(1.0), log, 0.95, torch.Generator(), seed=0)).verdict
        for log in (unlabelled, both)
    ]
    assert verdicts == ["trust", "distrust"]


def test_imagination_that_leaves_the_log_is_unfamiliar():
    data, generator = steady_walks(), torch.Generator().manual_seed(0)
    numbers = np.random.default_rng(1)
    inside = numbers.uniform(1.2, 4.5, (500, 1)), numbers.normal(0.1, 0.04, (500, 1))
    states_off = inside[0] + 20.0, inside[1]
    actions_off = inside[0], inside[1] + 1.0
    shares = [
        familiar_share(Drifting(1.0), data, pairs, generator, seed=0)
        for pairs in (inside, states_off, actions_off)
    ]
    assert shares[0] > 0.9 and max(shares[1:]) < 0.05
