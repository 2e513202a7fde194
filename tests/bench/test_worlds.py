"""The exact worlds are exact: their values agree with rollouts, their Q with one Bellman step, their features
are complete.
"""

import numpy as np
import pytest

from bcrl.linear import Moments, lspe
from bcrl.policies.policy import target_actions
from bcrl_bench.worlds import (
    DelayWorld,
    bandit,
    chain,
    counterexample,
    linear_inputs,
    low_rank,
    lqr,
    oscillators,
    pixel_lqr,
    random_tabular,
    rich_lqr,
    transitions,
)

WORLDS = {
    "tabular": (random_tabular(), 30),
    "chain": (chain(), 6),
    "low rank": (low_rank(), 20),
    "delay": (DelayWorld(), 15),
    "bandit": (bandit(), 1),
    "counterexample": (counterexample(), 20),
    "lqr": (lqr(), 30),
    "stochastic lqr": (lqr(target_std=0.3), 30),
    "oscillators": (oscillators(behaviour_std=1.0, discount=0.9), 30),
    "rich lqr": (rich_lqr(), 30),
    "pixel lqr": (pixel_lqr(), 20),
}


def discounted(episode, discount):
    return float((episode["rewards"] * discount ** np.arange(len(episode["rewards"]))).sum())


@pytest.mark.parametrize("name", WORLDS)
def test_value_agrees_with_rollouts_of_the_target_and_not_of_the_behaviour(name):
    world, _ = WORLDS[name]
    num = 300 if name == "pixel lqr" else 2000
    rng = np.random.default_rng(1)
    returns = [discounted(e, world.discount) for e in world.episodes(num, 120, rng, policy=world.target)]
    error = np.std(returns) / np.sqrt(num)
    left = world.discount**120 * 10.0
    assert abs(np.mean(returns) - world.value) < 4.0 * error + left
    behaved = [discounted(e, world.discount) for e in world.episodes(num, 120, rng)]
    assert abs(np.mean(behaved) - world.value) > 5.0 * np.std(behaved) / np.sqrt(num)


@pytest.mark.parametrize("name", WORLDS)
def test_q_is_reward_plus_discounted_v_on_average(name):
    world, length = WORLDS[name]
    flat = transitions(world.episodes(100 if name == "pixel lqr" else 1500, length, np.random.default_rng(2)))
    backup = flat["rewards"] + world.discount * ~flat["terminated"] * world.v(flat["next_observations"])
    gap = world.q(flat["observations"], flat["actions"]) - backup
    assert abs(gap.mean()) < 5.0 * gap.std() / np.sqrt(len(gap)) + 1e-5


@pytest.mark.parametrize("name", WORLDS)
def test_features_span_q_and_average_to_the_policys_features(name):
    world, length = WORLDS[name]
    flat = transitions(world.episodes(100 if name == "pixel lqr" else 300, length, np.random.default_rng(3)))
    phi = world.features(flat["observations"], flat["actions"])
    q = world.q(flat["observations"], flat["actions"])
    theta = np.linalg.lstsq(phi, q, rcond=None)[0]
    np.testing.assert_allclose(phi @ theta, q, atol=1e-6 * np.abs(q).max())
    full = np.linalg.matrix_rank(phi) == phi.shape[1]
    if full:
        value = world.policy_features(flat["starts"]) @ theta
        np.testing.assert_allclose(value, world.v(flat["starts"]), atol=1e-5 * np.abs(q).max())
        assert world.start_features() @ theta == pytest.approx(world.value, rel=1e-5)


@pytest.mark.parametrize("name", WORLDS)
def test_dataset_and_policies_fit_together(name):
    world, length = WORLDS[name]
    data = world.dataset(5, length, seed=0)
    targets = target_actions(data, world.target, num_samples=4, seed=0)
    assert targets.weights.shape[0] == len(data) + data.num_episodes
    assert data.log_prob is not None and np.isfinite(data.log_prob).all()
    assert (data.terminated | data.truncated)[data.offsets[1:] - 1].all()


def test_chain_truncation_taken_for_termination_gives_the_other_known_answer():
    world = chain()
    data = linear_inputs(world, world.episodes(500, 6, np.random.default_rng(0)))
    x0 = world.start_features()
    right = lspe(Moments.from_features(*data.arrays), world.discount)
    assert x0 @ right.lstd == pytest.approx(world.value, rel=1e-5)
    last = np.zeros(len(data.rewards), dtype=bool)
    last[5::6] = True
    wrong = lspe(Moments.from_features(data.phi, data.next_phi, data.rewards, last), world.discount)
    assert x0 @ wrong.lstd == pytest.approx(world.value * (1.0 - world.discount**6), rel=1e-5)


def test_pixels_show_position_and_the_stack_shows_velocity():
    world = pixel_lqr()
    data = world.dataset(20, 20, seed=0)
    frames = data.observe(data.rows)["pixels"].astype(np.float64)
    grid = np.arange(32)
    mass = frames.sum(axis=(1, 2))
    across = (frames * grid[None, None, :, None]).sum(axis=(1, 2)) / mass
    down = (frames * grid[None, :, None, None]).sum(axis=(1, 2)) / mass
    centres = np.stack([across, down], axis=-1)
    state = data.observations["state"][data.rows]
    inside = (np.abs(state[:, :2]) < 1.0).all(axis=1)
    unit = 2.0 / 15.5
    position = (centres[:, 1] - 15.5) * unit
    velocity = (centres[:, 1] - centres[:, 0]) * unit
    np.testing.assert_allclose(position[inside], state[inside, :2], atol=0.02)
    np.testing.assert_allclose(velocity[inside], state[inside, 2:], atol=0.04)
    assert frames.shape[1:] == (32, 32, 2)
