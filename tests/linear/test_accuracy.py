"""With exact features the error falls like N^-1/2 and is small; each classic bug makes it large."""

import numpy as np
import pytest

from bcrl.linear import Moments, lspe
from bcrl_bench.worlds import linear_inputs, lqr, random_tabular, transitions

WORLDS = {"tabular": random_tabular, "lqr": lqr}


def estimate(world, arrays):
    return float(
        world.start_features() @ lspe(Moments.from_features(*arrays), world.discount, ridge=0.0).lstd
    )


def relative_error(world, arrays):
    return estimate(world, arrays) / world.value - 1.0


def sized(world, count, seed):
    """The world's exact features along about `count` transitions."""
    data = linear_inputs(world, world.episodes(max(count // 10, 10), 40, np.random.default_rng(seed)))
    return tuple(a[:count] for a in data.arrays)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_error_falls_like_the_root_of_n_and_is_under_one_percent_at_200k(name):
    world = WORLDS[name]()
    counts = (2_000, 20_000, 200_000)
    errors = np.array([[relative_error(world, sized(world, n, seed)) for seed in range(12)] for n in counts])
    rms = np.sqrt((errors**2).mean(axis=1))
    slope = np.polyfit(np.log(counts), np.log(rms), 1)[0]
    print(
        f"{name}: relative rms error {dict(zip(counts, rms.round(5).tolist(), strict=True))}, "
        f"slope {slope:.2f}"
    )
    assert -0.7 < slope < -0.35
    assert rms[-1] < 0.01


def mutate_swap(world, flat, data):
    """s and s' swapped."""
    return (
        world.features(flat["next_observations"], flat["actions"]),
        world.policy_features(flat["observations"]),
        data.rewards,
        data.terminated,
    )


def mutate_mask(world, flat, data):
    """The terminal mask dropped."""
    return data.phi, data.next_phi, data.rewards, np.zeros_like(data.terminated)


def mutate_policy(world, flat, data):
    """pi(s) used where pi(s') belongs: phi(s', pi(s)), d3rlpy #93."""
    if world.num_actions is None:
        wrong = world.features(flat["next_observations"], world.target.act(flat["observations"]))
    else:
        table = world.target.probabilities(flat["observations"])
        states = flat["next_observations"].argmax(axis=1)
        wrong = np.einsum("na,nad->nd", table, world.feature_table[states])
    return data.phi, wrong, data.rewards, data.terminated


@pytest.mark.parametrize(
    ("name", "mutate"),
    [
        ("tabular", mutate_swap),
        ("tabular", mutate_mask),
        ("tabular", mutate_policy),
        ("lqr", mutate_swap),
        ("lqr", mutate_policy),
    ],
)
def test_classic_bugs_are_visible(name, mutate):
    world = WORLDS[name]()
    episodes = world.episodes(2000, 40, np.random.default_rng(0))
    data, flat = linear_inputs(world, episodes), transitions(episodes)
    right = abs(relative_error(world, data.arrays))
    wrong = abs(relative_error(world, mutate(world, flat, data)))
    assert right < 0.03
    assert wrong > 0.06
