"""A policy's actions on a dataset: exact expectations, draws, and the first few of the draws."""

import numpy as np
from policies.small_data import dataset

from bcrl.policies.policy import target_actions


class Noise:
    """Random whole numbers (discrete) or vectors (continuous) that pay no heed to the observation."""

    reads = None

    def __init__(self, num_actions=None):
        self.num_actions = num_actions

    def sample(self, observations, generator):
        if self.num_actions is None:
            return generator.normal(size=(len(observations), 2))
        return generator.integers(self.num_actions, size=len(observations))

    def log_prob(self, observations, actions):
        return np.zeros(len(observations))


class Uniform:
    reads = None

    def probabilities(self, observations):
        return np.full((len(observations), 4), 0.25)


def test_first_draws_are_what_fewer_draws_would_have_been():
    many = target_actions(dataset(), Noise(), num_samples=8, seed=3)
    few = target_actions(dataset(), Noise(), num_samples=3, seed=3)
    np.testing.assert_array_equal(many.first(3).actions, few.actions)
    np.testing.assert_array_equal(many.first(3).weights, few.weights)
    assert many.first(8) is many
    assert many.first(20) is many


def test_exact_expectations_are_never_cut():
    found = target_actions(dataset(num_actions=4), Uniform())
    assert found.exact
    assert found.first(2) is found
    part = found.take(np.arange(3))
    assert part.first(2) is part


def test_as_many_draws_as_actions_are_still_draws():
    found = target_actions(dataset(num_actions=4), Noise(4), num_samples=4)
    assert not found.exact
    assert len(np.unique(found.actions.argmax(axis=2), axis=0)) > 1
