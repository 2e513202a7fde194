"""Bandits and sessions: quadrature against plain averages, batches against a session written out."""

import numpy as np
import pytest

from bcrl_bench.proving.families import bandit, recommendation
from bcrl_bench.proving.regimes import cases_of, policy_of
from bcrl_bench.proving.truth import returns, roll_out


@pytest.mark.parametrize(("seed", "contexts"), [(0, 200_000), (1, 40_000), (2, 4_000)])
def test_quadrature_is_the_average_over_contexts(seed, contexts):
    world, rng = bandit.make(seed), np.random.default_rng(0)
    seen = rng.standard_normal((contexts, 5))
    policy = policy_of(bandit.FAMILY, world, "noisy good")
    table = policy.probabilities(seen)
    pair = np.stack([seen @ world.turn[0], seen @ world.turn[1]], axis=1)
    earned = (table * (world.level + np.tanh(pair @ world.taste.T))).sum(axis=1)
    assert abs(earned.mean() - world.exact_value(policy, 0.9, None)) < 4 * earned.std() / np.sqrt(contexts)


def test_a_decision_is_the_end_and_is_paid_by_its_context():
    world, rng = bandit.make(0), np.random.default_rng(0)
    state = np.tile(world.start(1, rng), (20_000, 1))
    rewards, _, ended = world.step(state, np.full(20_000, 3), rng)
    expected = world.level[3] + np.tanh(world.turn[:2] @ state[0] @ world.taste[3])
    assert ended.all() and abs(rewards.mean() - expected) < 4 * 0.5 / np.sqrt(20_000)


def test_bandits_have_ten_a_hundred_and_a_thousand_actions():
    sizes = {bandit.make(case.world).num_actions for case in cases_of(bandit.FAMILY)}
    assert sizes == {10, 100, 1000}


def session(world, rng, policy):
    """One session, written out for one visitor."""
    interest, tired, earned, weight = rng.standard_normal(4), np.zeros(4), 0.0, 1.0
    for shown in range(1, 21):
        seen = np.concatenate([interest, tired, [(shown - 1) / 20]])
        item = rng.choice(24, p=policy.probabilities(seen[None])[0])
        liking = interest[item % 4] - 1.5 * tired[item % 4] + world.appeal[item] - 1.0
        clicked = rng.random() < 1 / (1 + np.exp(-liking))
        earned += weight * world.price[item] * clicked
        tired = 0.7 * tired
        tired[item % 4] += 0.5
        weight *= 0.9
        if shown >= 5 and rng.random() < 0.02 + (0.0 if clicked else 0.12 * tired[item % 4]):
            break
    return earned, shown


def test_sessions_in_batches_are_sessions_one_by_one():
    world, rng = recommendation.make(0), np.random.default_rng(0)
    one_by_one = np.array([session(world, rng, world.policies["medium"]) for _ in range(1500)])
    batch = roll_out(recommendation.FAMILY, world, world.policies["medium"], 20_000, np.random.default_rng(1))
    earned = returns(batch.rewards, 0.9, None)
    assert batch.unended == 0
    assert one_by_one[:, 1].min() == 5 and one_by_one[:, 1].max() == 20
    assert abs(earned.mean() - one_by_one[:, 0].mean()) < 3.5 * one_by_one[:, 0].std() / np.sqrt(1500)
