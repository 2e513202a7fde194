"""Consensus on worlds whose values are known exactly: the value, V(s), and mistakes that must show."""

import dataclasses

import numpy as np
import pytest
from estimators.spoiled import swapped, unmasked

import bcrl
from bcrl.errors import BadInput
from bcrl.estimators.consensus import Consensus
from bcrl.question import Question
from bcrl.training import Run
from bcrl_bench.asking import ask_one
from bcrl_bench.worlds import chain, lqr, random_tabular

WORLDS = {
    "lqr": lqr(),
    "stochastic lqr": lqr(target_std=0.3),
    "tabular": random_tabular(),
    "chain": chain(),
}


def answer(world, dataset, **changes):
    asked = {"policy": world.target, "discount": world.discount} | changes
    return ask_one(Consensus(), dataset, **asked)


@pytest.fixture(scope="module")
def answers():
    return {name: answer(world, world.dataset(400, 40, seed=1)) for name, world in WORLDS.items()}


def true_here(name):
    """The value from the starts of the log that `answers` saw."""
    log = WORLDS[name].dataset(400, 40, seed=1)
    return WORLDS[name].v(log.natural(log.start_observations())).mean()


@pytest.mark.parametrize("name", WORLDS)
def test_the_value_is_near(name, answers):
    world, estimate = WORLDS[name], answers[name]
    assert estimate.value == pytest.approx(true_here(name), rel=0.03)
    assert abs(estimate.value - world.value) < 3.0 * estimate.standard_error + 0.01 * abs(world.value)


@pytest.mark.parametrize("name", WORLDS)
def test_v_is_near_where_the_log_is_and_its_mean_over_the_starts_is_the_value(name, answers):
    world, estimate = WORLDS[name], answers[name]
    assert estimate.per_start.mean() == pytest.approx(estimate.value, rel=1e-9)
    log = world.dataset(20, 10, seed=9)
    seen = log.natural(log.observe(log.rows))
    truth = world.v(seen)
    guessed, low, high = estimate.value_at(seen, interval=True)
    size = np.abs(truth).mean()
    assert np.sqrt(np.mean((guessed - truth) ** 2)) < 0.1 * size
    assert np.all(low < guessed) and np.all(guessed < high)
    off = np.abs(guessed - truth)
    assert np.mean(off < (high - low) / 2 + 0.05 * size) > 0.8


def test_v_of_the_starts_is_per_start(answers):
    world = WORLDS["lqr"]
    log = world.dataset(400, 40, seed=1)
    assert answers["lqr"].value_at(log.start_observations()) == pytest.approx(answers["lqr"].per_start)


@pytest.mark.parametrize("name", ["lqr", "tabular"])
def test_saved_and_loaded_it_says_the_same_to_the_bit(name, answers, tmp_path):
    world, estimate = WORLDS[name], answers[name]
    estimate.save(tmp_path / "kept")
    again = bcrl.load_estimate(tmp_path / "kept", policy=world.target)
    log = world.dataset(5, 10, seed=4)
    seen = log.natural(log.observe(log.rows))
    for ours, theirs in zip(
        estimate.value_at(seen, interval=True), again.value_at(seen, interval=True), strict=True
    ):
        assert np.array_equal(ours, theirs)


def test_with_a_horizon_v_has_no_interval():
    world = WORLDS["tabular"]
    estimate = answer(world, world.dataset(300, 30, seed=2), horizon=5)
    log = world.dataset(5, 10, seed=4)
    seen = log.natural(log.observe(log.rows))
    assert np.isfinite(estimate.value_at(seen)).all()
    assert estimate.per_start.mean() == pytest.approx(estimate.value, rel=1e-9)
    with pytest.raises(BadInput, match="no per-state interval"):
        estimate.value_at(seen, interval=True)


def test_states_told_apart_by_few_of_many_columns_are_told_apart():
    """Distances between steps are mostly noise here; the learned metric must find the columns that matter."""
    world, noise = WORLDS["lqr"], np.random.default_rng(3)
    log = world.dataset(150, 40, seed=5)
    (key,) = log.observations
    clean = np.asarray(log.observations[key])
    width = clean.shape[1]
    wide = np.concatenate([clean, clean.std() * noise.standard_normal((len(clean), 25))], axis=1)
    hidden = dataclasses.replace(log, observations={key: wide})
    policy = bcrl.load_policy(lambda x: world.target.act(x[:, :width]))
    estimate = ask_one(Consensus(), hidden, policy, discount=world.discount)
    truth = world.v(log.natural(log.start_observations())).mean()
    assert estimate.value == pytest.approx(truth, rel=0.1)


@pytest.mark.parametrize("name", ["lqr", "tabular"])
def test_a_log_that_is_read_wrongly_shows(name):
    world = WORLDS[name]
    wrong = answer(world, swapped(world.dataset(400, 40, seed=1)))
    assert wrong.value != pytest.approx(true_here(name), rel=0.05)


def test_without_its_ends_a_table_is_worth_more_or_less():
    world = WORLDS["tabular"]
    log = world.dataset(400, 40, seed=1)
    assert log.terminated.any()
    assert answer(world, unmasked(log)).value != pytest.approx(true_here("tabular"), rel=0.1)


def test_the_policy_is_asked_at_the_next_state(monkeypatch):
    """pi(s) for pi(s'): the views' next actions taken one row too early must move the value."""
    world = WORLDS["lqr"]
    log = world.dataset(400, 40, seed=1)
    question = Question.of(
        log, {"p": world.target}, discount=world.discount, horizon=None, starts=None, level=0.95, seed=0
    )
    target = question.targets["p"]
    actions = target.actions
    shifted = np.arange(log.num_observations)
    shifted[log.rows + 1] = log.rows
    monkeypatch.setitem(target.__dict__, "actions", actions.take(shifted))
    wrong = Consensus().estimate(question, Run())["p"]
    assert wrong.value != pytest.approx(true_here("lqr"), rel=0.05)
