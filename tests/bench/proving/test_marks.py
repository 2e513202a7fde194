"""Marks where the answer is known: a log on a line, actions near and far, each kind of action's rule."""

from types import SimpleNamespace

import numpy as np
import pytest

from bcrl_bench.proving.marks import mark_of, nearby, nearest
from bcrl_bench.proving.regimes import Noisy, Uniform, supports
from bcrl_bench.proving.truth import Visits, edges


def line(first, last, count=1_000, seed=0):
    return np.random.default_rng(seed).uniform(first, last, (count, 1))


LOGGED, EPISODE = line(0.0, 1.0), np.arange(1_000) % 50


@pytest.mark.parametrize(
    ("inside", "supported", "mark"),
    [
        (1.0, 1.0, "covered"),
        (0.97, 1.0, "covered"),
        (0.9, 1.0, "partly"),
        (0.5, 1.0, "not"),
        (1.0, 0.9, "partly"),
        (1.0, 0.3, "not"),
    ],
)
def test_shares_make_the_mark(inside, supported, mark):
    count = 1_000
    there = np.where(np.arange(count)[:, None] < inside * count, LOGGED[:count], 5.0)
    shown = np.arange(count) < supported * count
    found = mark_of(shown, there, np.ones(count), LOGGED, EPISODE)
    assert found.mark == mark
    assert found.states == pytest.approx(inside, abs=0.02) and found.actions == pytest.approx(supported)


def test_both_rules_must_hold_at_the_same_step():
    there = np.where(np.arange(100)[:, None] < 70, 0.5, 9.0)
    found = mark_of(np.arange(100) >= 30, there, np.ones(100), LOGGED, EPISODE)
    assert found.share == pytest.approx(0.4) and found.mark == "not"


def test_steps_count_by_their_discounted_time():
    there = np.array([[0.5], [9.0]])
    assert mark_of(np.ones(2, bool), there, np.array([0.99, 0.01]), LOGGED, EPISODE).mark == "covered"
    assert mark_of(np.ones(2, bool), there, np.array([0.5, 0.5]), LOGGED, EPISODE).mark == "not"


def test_the_neighbour_is_of_another_episode():
    """Two tight episodes far apart: their own steps are near, the other episode's are not."""
    logged = np.concatenate([np.zeros((50, 1)), np.full((50, 1), 10.0)])
    episode = np.repeat([0, 1], 50)
    assert nearest(logged[:1], logged, episode[:1], episode)[0] == pytest.approx(10.0)
    assert nearest(logged[:1], logged)[0] == pytest.approx(0.0)
    assert nearby(np.array([[5.0]]), logged, episode).all()


def test_units_do_not_matter():
    wide = np.concatenate([LOGGED, 1_000.0 * line(0.0, 1.0, seed=1)], axis=1)
    for scale in (1.0, 1e-3):
        near = nearby(scale * np.array([[0.5, 500.0], [3.0, 500.0]]), scale * wide, EPISODE)
        assert near.tolist() == [True, False]


def test_a_state_that_was_never_logged_is_not_near():
    near = nearby(np.eye(3), np.eye(3)[[0, 1] * 50], np.arange(100) // 10)
    assert near.tolist() == [True, True, False]


ZERO = SimpleNamespace(act=lambda seen: np.zeros((len(seen), 2)), reads=None)


def test_gaussian_actions_within_99_percent():
    world, rng = SimpleNamespace(num_actions=None), np.random.default_rng(0)
    behaviour = Noisy(ZERO, 0.3)
    seen = np.zeros((20_000, 1))
    own = supports(world, [behaviour], seen, behaviour.sample(seen, rng))
    assert own.mean() == pytest.approx(0.99, abs=0.003)
    edge = 0.3 * np.sqrt(9.2103)  # chi-square with 2 degrees of freedom, 99 %
    at = np.array([[edge * 0.999, 0.0], [edge * 1.001, 0.0], [0.0, 0.0]])
    assert supports(world, [behaviour], np.zeros((3, 1)), at).tolist() == [True, False, True]
    far = SimpleNamespace(act=lambda seen: np.full((len(seen), 2), 5.0), reads=None)
    both = [behaviour, Noisy(far, 0.3)]
    assert supports(world, both, np.zeros((2, 1)), np.array([[5.0, 5.0], [2.5, 2.5]])).tolist() == [
        True,
        False,
    ]


def test_discrete_actions_of_a_fifth_of_uniform():
    world = SimpleNamespace(num_actions=4)
    policy = SimpleNamespace(act=lambda seen: np.zeros(len(seen), int), reads=None)
    seen, actions = np.zeros((2, 1)), np.array([0, 3])
    for share, shown in ((0.21, [True, True]), (0.19, [True, False])):
        assert supports(world, [Uniform(policy, share, 4)], seen, actions).tolist() == shown


@pytest.mark.parametrize("horizon", [None, 3, 40])
def test_stretches_share_out_the_discounted_time(horizon):
    """Steps kept of one rollout, one of every stretch, weigh as much as all steps together."""
    longest = 100
    stretch = np.arange(len(edges(longest)) - 1)
    empty = np.zeros((len(stretch), 1))
    visits = Visits(empty, empty, edges(longest)[:-1], 0 * stretch, stretch, empty)
    expected = (0.9 ** np.arange(longest if horizon is None else horizon)).sum()
    assert visits.weights(longest, 0.9, horizon).sum() == pytest.approx(expected)
