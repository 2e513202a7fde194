"""What is hidden changes the answer, the truth is exact all the same, and the log does not give it away."""

import numpy as np
import pytest

from bcrl_bench.proving.family import load_family
from bcrl_bench.proving.regimes import policy_of
from bcrl_bench.proving.world import play, record

FAMILIES = ("hidden_state", "hidden_confounder", "hidden_groups")


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("words", ["good", "noisy other"])
def test_truth_is_the_mean_of_rollouts(name, words):
    family = load_family(name)
    world, rng = family.make(1), np.random.default_rng(0)
    policy, earned = policy_of(family, world, words), np.zeros(20_000)
    # one start each, so that groups are drawn for each
    state = np.concatenate([world.start(1, rng) for _ in range(len(earned))])

    def visit(step):
        earned[step.alive] += 0.95**step.time * step.rewards

    play(world, policy, state, 15, rng, visit=visit)
    exact = world.exact_value(policy, 0.95, 15)
    assert abs(earned.mean() - exact) < 3.5 * earned.std() / np.sqrt(len(earned))


@pytest.mark.parametrize("name", FAMILIES)
def test_whole_future_is_a_long_horizon(name):
    world = load_family(name).make(2)
    policy = world.policies["medium"]
    assert np.isclose(world.exact_value(policy, 0.9, None), world.exact_value(policy, 0.9, 400))


def test_confounded_log_misleads_and_holds_no_probabilities():
    family = load_family("hidden_confounder")
    world = family.make(0)
    log = record(world, policy_of(family, world, "noisy medium"), 2000, 1, np.random.default_rng(0))
    seen = log.observations["observation"][log.rows]
    effect = world.effect + seen @ world.taste
    naive = (log.rewards - log.actions * effect)[log.actions == 1].mean()
    assert naive > 1.0 + 0.5 * world.weight + 0.2  # who is treated is the more severe
    assert log.log_prob is None  # with the true probabilities weights would undo it


def test_a_log_of_groups_is_made_by_ten_patients():
    family = load_family("hidden_groups")
    world = family.make(0)
    state = world.start(200, np.random.default_rng(0))
    assert len(np.unique(state[:, 2])) == 10
    assert world.observe(state).shape == (200, 2)


def test_past_actions_pay_though_the_observation_does_not_hold_them():
    family = load_family("hidden_state")
    world, rng = family.make(0), np.random.default_rng(0)
    state = world.start(5000, rng)
    _, after, _ = world.step(state, np.ones(5000, int), rng)
    late, _, _ = world.step(after, np.zeros(5000, int), rng)
    assert abs(late.mean() - (1.0 + 0.3 * world.weight)) < 0.01
