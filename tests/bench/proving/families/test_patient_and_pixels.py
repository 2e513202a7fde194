"""The toy patient against one patient written out; the blob's Lyapunov value against rollouts."""

import numpy as np

from bcrl_bench.proving.families import pixel_world, toy_patient
from bcrl_bench.proving.regimes import policy_of
from bcrl_bench.proving.truth import returns, roll_out


def one_patient(world, rng, steps=48):
    """What "medium" earns with one patient, and whether it ended in an emergency."""
    glucose, insulin, gut = rng.uniform(0.9, 2.2), rng.uniform(0.1, 0.4), rng.uniform(0.0, 0.5)
    earned = 0.0
    for step in range(steps):
        dose = min(max(0.35 + 0.5 * (glucose - 1.1) + 0.1 * gut, 0.0), 2.0)
        change = world.carbohydrates * gut + 0.08 * (1.6 - glucose) - world.sensitive * insulin * glucose
        glucose = max(glucose + change + 0.03 * rng.normal(), 0.1)
        insulin = 0.75 * insulin + 0.25 * dose
        gut = 0.7 * gut + (rng.uniform(0.3, 1.0) if rng.random() < 0.15 else 0.0)
        earned += 0.97**step * np.exp(-(((glucose - 1.1) / 0.5) ** 2))
        if glucose < 0.55 or glucose > 3.0:
            return earned - 0.97**step * 5.0, True
    return earned, False


def test_patients_in_batches_are_patients_one_by_one():
    world, rng = toy_patient.make(1), np.random.default_rng(0)
    alone = np.array([one_patient(world, rng) for _ in range(1200)])
    batch = roll_out(toy_patient.FAMILY, world, world.policies["medium"], 6000, np.random.default_rng(1))
    earned = returns(batch.rewards, 0.97, 48)
    assert abs(earned.mean() - alone[:, 0].mean()) < 3.5 * alone[:, 0].std() / np.sqrt(1200)
    assert 0 < alone[:, 1].sum() < 1200  # emergencies happen, and not to all


def test_value_of_the_blob_is_what_rollouts_earn():
    world, family = pixel_world.make(1), pixel_world.FAMILY
    for words in ("good", "noisy medium"):
        policy = policy_of(family, world, words)
        earned = returns(roll_out(family, world, policy, 300, np.random.default_rng(0)).rewards, 0.9, 10)
        exact = world.exact_value(policy, 0.9, 10)
        assert abs(earned.mean() - exact) < 3.5 * earned.std() / np.sqrt(300)


def test_frames_show_the_position():
    world = pixel_world.make(0)
    state = world.start(50, np.random.default_rng(0))
    frames = world.observe(state)["pixels"][..., 0].astype(np.float64)
    across = (frames.sum(axis=1) * np.arange(32)).sum(axis=1) / frames.sum(axis=(1, 2))
    assert np.abs(across - (15.5 + state[:, 0] * 15.5 / 2)).max() < 0.2
