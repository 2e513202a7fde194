"""Policies of action chunks: a log in decisions of k steps asks the same question."""

from dataclasses import replace

import numpy as np
import pytest

import bcrl
from bcrl import BadInput, Dataset
from bcrl.data.chunks import action_chunks
from bcrl.inference.contrast import discounted_returns
from bcrl_bench.worlds import lqr


def log(ends, lengths=(7, 4, 2, 9)):
    generator = np.random.default_rng(0)
    episodes = [
        {
            "observations": generator.normal(size=(n + 1, 3)),
            "actions": generator.normal(size=(n, 2)),
            "rewards": generator.normal(size=n),
            "terminated": end,
            "cluster": number,
        }
        for number, (n, end) in enumerate(zip(lengths, ends, strict=True))
    ]
    return Dataset.from_episodes(episodes)


def test_rewards_and_states_of_the_chunks_by_hand():
    data = log([True, False, False, False])
    chunks = action_chunks(data, 3, discount=0.9)
    assert chunks.lengths.tolist() == [3, 1, 3] and chunks.cluster.tolist() == [0, 1, 3]
    assert chunks.terminated.tolist() == [False, False, True, False, False, False, False]
    assert chunks.truncated.tolist() == [False, False, False, True, False, False, True]
    seen = data.observations["observation"]
    begins = [0, 8, 13, 16]  # first observation rows of the episodes
    rows = [0, 3, 6, 7, 8, 11, 16, 19, 22, 25]
    assert data.start_rows.tolist() == begins
    np.testing.assert_array_equal(chunks.observations["observation"], seen[rows])
    np.testing.assert_array_equal(chunks.actions[3], data.actions[7:10])
    np.testing.assert_array_equal(chunks.actions[2], data.actions[[6, 6, 6]])
    assert chunks.rewards[0] == pytest.approx(data.rewards[:3] @ [1.0, 0.9, 0.81])
    assert chunks.rewards[2] == pytest.approx(data.rewards[6])
    assert chunks.dropped == 1 + 2  # one step of the second episode, all of the third


def test_returns_are_those_of_the_steps():
    data = log([True] * 4)
    for steps in (1, 2, 5):
        chunks = action_chunks(data, steps, discount=0.9)
        ours = discounted_returns(chunks, 0.9**steps)
        np.testing.assert_allclose(ours, discounted_returns(data, 0.9), rtol=1e-12)


def quadratic(states, actions):
    z = np.concatenate([states, actions.reshape(len(actions), -1)], axis=1)
    upper = np.triu_indices(z.shape[1])
    return np.concatenate([np.ones((len(z), 1)), z[:, upper[0]] * z[:, upper[1]]], axis=1)


def test_the_value_of_a_policy_that_plans_three_steps_is_exact():
    """Without noise to plan for, its plan is what the step-by-step policy does."""
    world = lqr()
    world = replace(world, noise=0.0 * world.noise, target_std=0.0)
    chunks = action_chunks(world.dataset(200, 12, 0), 3, discount=world.discount)

    def plan(states):
        actions = []
        for _ in range(3):
            actions.append(states @ world.gain.T)
            states = states @ world.a.T + actions[-1] @ world.b.T
        return np.stack(actions, axis=1)

    method = bcrl.LSPE(bcrl.GivenFeatures(quadratic))
    starts = np.random.default_rng(1).multivariate_normal(world.mean0, world.cov0, 50)
    estimate = bcrl.evaluate(
        chunks, plan, discount=world.discount**3, method=method, starts=starts, quiet=True
    )
    np.testing.assert_allclose(estimate.per_start, world.v(starts), rtol=1e-4)


def test_what_has_no_chunks_is_refused():
    with pytest.raises(BadInput, match="the longest has 9"):
        action_chunks(log([False] * 4), 10, discount=0.9)
    with pytest.raises(BadInput, match="expected a whole number"):
        action_chunks(log([True] * 4), 0, discount=0.9)
    discrete = Dataset.from_arrays(np.zeros((4, 1)), [0, 1, 0, 1], np.ones(4), [0, 0, 0, 1])
    with pytest.raises(BadInput, match="continuous actions"):
        action_chunks(discrete, 2, discount=0.9)
    stacked = replace(log([True] * 4), stack=3)
    with pytest.raises(BadInput, match="stack is 3"):
        action_chunks(stacked, 2, discount=0.9)
