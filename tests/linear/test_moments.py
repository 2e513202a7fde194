"""Moments against brute force, and the algebra that makes shards mergeable."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bcrl.errors import BadInput
from bcrl.linear import Moments, lspe
from bcrl_bench.worlds import linear_inputs, random_tabular

FIELDS = ("sigma", "c", "b", "sigma_next", "e", "reward_square", "count", "reward")


def sample(seed, n=200, d=5):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(n, d)), rng.normal(size=n), rng.random(n) < 0.2


def assert_close(one, other, tolerance=1e-12):
    for name in FIELDS:
        a, b = np.asarray(getattr(one, name)), np.asarray(getattr(other, name))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, np.abs(b).max()))


def test_every_sum_against_a_loop():
    phi, next_phi, rewards, terminated = sample(0)
    m = Moments.from_features(phi, next_phi, rewards, terminated, chunk=64)
    masked = next_phi * ~terminated[:, None]
    rows = range(len(phi))
    np.testing.assert_allclose(m.sigma, sum(np.outer(phi[i], phi[i]) for i in rows))
    np.testing.assert_allclose(m.c, sum(np.outer(phi[i], masked[i]) for i in rows))
    np.testing.assert_allclose(m.b, sum(phi[i] * rewards[i] for i in rows))
    np.testing.assert_allclose(m.sigma_next, sum(np.outer(masked[i], masked[i]) for i in rows))
    np.testing.assert_allclose(m.e, sum(masked[i] * rewards[i] for i in rows))
    assert m.reward_square == pytest.approx((rewards**2).sum())
    assert m.reward == pytest.approx(rewards.sum())
    assert m.count == len(phi)
    np.testing.assert_allclose(m.mean.sigma, m.sigma / len(phi))


def test_terminal_rows_do_not_see_the_next_features():
    phi, next_phi, rewards, _ = sample(1)
    all_end = np.ones(len(phi), dtype=bool)
    m = Moments.from_features(phi, next_phi * np.nan, rewards, all_end)
    assert not m.c.any() and not m.sigma_next.any() and not m.e.any()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    cuts=st.lists(st.integers(0, 200), max_size=6),
    order=st.randoms(use_true_random=False),
)
def test_merging_in_any_split_and_order_equals_one_pass(seed, cuts, order):
    arrays = sample(seed)
    edges = [0, *sorted(cuts), 200]
    parts = [Moments.from_features(*(a[i:j] for a in arrays)) for i, j in itertools.pairwise(edges)]
    order.shuffle(parts)
    total = Moments.zeros(5)
    for part in parts:
        total = total + part
    assert_close(total, Moments.from_features(*arrays))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000))
def test_permuting_episodes_changes_nothing(seed):
    world = random_tabular(seed=seed % 5)
    rng = np.random.default_rng(seed)
    episodes = world.episodes(40, 20, rng)
    shuffled = [episodes[i] for i in rng.permutation(len(episodes))]
    first, second = (linear_inputs(world, e) for e in (episodes, shuffled))
    one, other = Moments.from_features(*first.arrays), Moments.from_features(*second.arrays)
    assert_close(one, other)
    x0 = world.start_features()
    values = [float(x0 @ lspe(m, world.discount).lstd) for m in (one, other)]
    assert values[0] == pytest.approx(values[1], rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_an_invertible_map_of_the_features_leaves_the_fixed_point_alone(seed):
    world = random_tabular(seed=3, num_states=4, num_actions=2)
    rng = np.random.default_rng(seed)
    data = linear_inputs(world, world.episodes(200, 20, np.random.default_rng(1)))
    mix = rng.normal(size=(8, 8)) + 3.0 * np.eye(8)
    if np.linalg.cond(mix) > 1e3:
        mix = np.eye(8) * rng.uniform(0.1, 10.0, 8)
    plain = lspe(Moments.from_features(*data.arrays), world.discount, ridge=0.0)
    mixed = lspe(
        Moments.from_features(data.phi @ mix, data.next_phi @ mix, data.rewards, data.terminated),
        world.discount,
        ridge=0.0,
    )
    x0 = world.start_features()
    assert x0 @ mix @ mixed.lstd == pytest.approx(x0 @ plain.lstd, rel=1e-7)
    assert mixed.spectral_radius == pytest.approx(plain.spectral_radius, rel=1e-6)


def test_float32_features_are_summed_in_float64():
    phi, next_phi, rewards, terminated = sample(2, n=5000)
    small, next_small = phi.astype(np.float32), next_phi.astype(np.float32)
    one = Moments.from_features(small, next_small, rewards, terminated)
    other = Moments.from_features(
        small.astype(np.float64), next_small.astype(np.float64), rewards, terminated
    )
    assert_close(one, other)
    assert one.sigma.dtype == np.float64


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"next_phi": np.zeros((200, 4))}, "two equal"),
        ({"rewards": np.zeros((200, 1))}, "one per transition"),
        ({"terminated": np.zeros(200)}, "expected bool"),
    ],
)
def test_arrays_that_do_not_belong_together_are_refused(change, words):
    names = ("phi", "next_phi", "rewards", "terminated")
    arrays = {**dict(zip(names, sample(3), strict=True)), **change}
    with pytest.raises(BadInput, match=words):
        Moments.from_features(**arrays)


def test_moments_of_other_features_do_not_merge():
    with pytest.raises(BadInput, match="same representation"):
        Moments.zeros(3) + Moments.zeros(4)
    with pytest.raises(BadInput, match="at least one transition"):
        _ = Moments.zeros(3).mean
