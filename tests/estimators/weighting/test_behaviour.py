"""The cloned logging policy against the one that made the data."""

from dataclasses import replace

import numpy as np
import pytest

from bcrl.data.dataset import Dataset
from bcrl.estimators.weighting.behaviour import BehaviourCloning
from bcrl.estimators.weighting.importance import ImportanceSampling
from bcrl.training import Run
from bcrl_bench.asking import ask
from bcrl_bench.worlds import lqr, random_tabular


def without_log_prob(dataset):
    return replace(dataset, log_prob=None)


def test_categorical_clone_finds_the_probabilities():
    world = random_tabular()
    dataset = world.dataset(400, 12, 0)
    fit = BehaviourCloning(steps=800).fit(without_log_prob(dataset), seed=0, run=Run())
    error = np.abs(np.exp(fit.log_prob) - np.exp(dataset.log_prob))
    assert error.mean() < 0.03
    entropy = float(dataset.log_prob.mean())
    assert fit.stats["behaviour_held_out_log_likelihood"] == pytest.approx(entropy, abs=0.05)
    assert fit.checks[0].verdict == "caution"


def test_gaussian_clone_finds_the_density():
    world = lqr()
    dataset = world.dataset(300, 20, 0)
    fit = BehaviourCloning(steps=800).fit(without_log_prob(dataset), seed=0, run=Run())
    assert np.abs(fit.log_prob - dataset.log_prob).mean() < 0.15


def test_squashed_clone_of_bounded_actions():
    rng = np.random.default_rng(0)
    states = rng.normal(size=(4000, 1)).astype(np.float32)
    actions = np.tanh(0.7 * states[:-1] + 0.4 * rng.normal(size=(3999, 1)))
    dataset = Dataset(
        observations={"observation": states},
        actions=actions,
        rewards=np.zeros(3999),
        terminated=np.zeros(3999, dtype=bool),
        truncated=np.arange(3999) == 3998,
        offsets=np.array([0, 3999]),
        single=True,
    )
    fit = BehaviourCloning(steps=800).fit(dataset, seed=0, run=Run())
    z = (np.arctanh(actions) - 0.7 * states[:-1]) / 0.4
    exact = (-0.5 * z**2 - np.log(0.4 * np.sqrt(2 * np.pi)) - np.log1p(-(actions**2)))[:, 0]
    assert np.abs(fit.log_prob - exact).mean() < 0.1


def test_the_floor_bounds_the_weights():
    world = random_tabular()
    dataset = without_log_prob(world.dataset(50, 12, 0))
    fit = BehaviourCloning(steps=300, floor=0.3).fit(dataset, seed=0, run=Run())
    assert np.exp(fit.log_prob).min() >= 0.3 / world.num_actions - 1e-6


def test_known_probabilities_are_used_as_they_are():
    dataset = random_tabular().dataset(10, 5, 0)
    fit = BehaviourCloning().fit(dataset, seed=0, run=Run())
    assert fit.log_prob is dataset.log_prob or (fit.log_prob == dataset.log_prob).all()
    assert not fit.checks


def test_importance_sampling_with_a_clone_is_near_the_truth():
    world = random_tabular(discount=0.5)
    dataset = without_log_prob(world.dataset(2000, 8, 0))
    estimate = ask(
        ImportanceSampling(behaviour=BehaviourCloning(steps=600)), dataset, {"t": world.target}, discount=0.5
    )["t"]
    assert estimate.value == pytest.approx(world.value, rel=0.05)
    assert "behaviour_held_out_log_likelihood" in estimate.stats


def test_killed_and_resumed_equals_never_stopped(killed_and_resumed):
    dataset = without_log_prob(random_tabular().dataset(50, 12, 0))

    def work(run, seed=3):
        return BehaviourCloning(steps=200).fit(dataset, seed=seed, run=run)

    never_stopped = work(Run())
    np.testing.assert_array_equal(killed_and_resumed(work).log_prob, never_stopped.log_prob)
    assert (work(Run(), seed=4).log_prob != never_stopped.log_prob).any()
