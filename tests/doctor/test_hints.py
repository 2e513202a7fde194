"""What the log contradicts or hints at is found, enters the verdict, and healthy logs are left alone
(F12, F13, F15, F17, F47)."""

import dataclasses

import numpy as np
import pytest

import bcrl
from bcrl.doctor import examine
from bcrl_bench import worlds
from bcrl_bench.worlds import findings

RANDOM = bcrl.LSPE(bcrl.RandomFeatures(dim=50))
SEEDS = range(5)


def bearing(dataset):
    return {f.bears.name: f for f in examine(dataset) if f.bears is not None}


def log_of(case, **changes):
    return bcrl.Dataset.from_arrays(**case.arrays | changes)


def names(estimate):
    return {check.name for check in estimate.checks if check.verdict != "trust"}


@pytest.mark.parametrize("seed", SEEDS)
def test_log_prob_that_the_actions_contradict_is_found(seed):
    case = findings.f12_contradicted_probabilities(seed)
    assert bearing(log_of(case))["log_prob"].bears.verdict == "distrust"
    taken = case.arrays["actions"]
    right = np.log(np.where(taken == 1, 0.3, 0.7))
    assert "log_prob" not in bearing(log_of(case, log_prob=right))
    assert "log_prob" in bearing(log_of(case, log_prob=right / np.log(10)))


def test_contradicted_log_prob_is_a_reason_where_it_is_read():
    case = findings.f12_contradicted_probabilities()
    policy = bcrl.load_policy(case.policy, output="probabilities", num_actions=2)
    for method, told in ((bcrl.ImportanceSampling(), True), (RANDOM, False)):
        estimate = bcrl.evaluate(log_of(case), policy, discount=0.9, method=method)
        assert ("log_prob" in names(estimate)) == told
        assert not told or estimate.verdict == "distrust"


def gaussian(seed, noise, clip=False):
    """Actions -0.5 x plus noise, and the log density of each."""
    rng, count = np.random.default_rng(seed), 3000
    x = rng.normal(size=(count, 2))
    mean = -0.5 * x[:, :1] + 0.3 * np.sin(3 * x[:, 1:])
    drawn = mean + noise * rng.normal(size=mean.shape)
    log_prob = -0.5 * ((drawn - mean) / noise) ** 2 - np.log(noise) - 0.5 * np.log(2 * np.pi)
    last = np.arange(count) % 10 == 9
    arrays = {"observations": x, "actions": np.clip(drawn, -1, 1) if clip else drawn, "terminated": last}
    return arrays | {"rewards": rng.normal(size=count), "log_prob": log_prob[:, 0]}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("noise", [0.3, 1.0])
def test_densities_are_tested_too(seed, noise):
    arrays = gaussian(seed, noise)
    assert "log_prob" not in bearing(bcrl.Dataset.from_arrays(**arrays))
    assert "log_prob" not in bearing(bcrl.Dataset.from_arrays(**gaussian(seed, noise, clip=True)))
    wider = arrays["log_prob"] - np.log(2) + 0.375 * (2 * (arrays["log_prob"].max() - arrays["log_prob"]))
    for wrong in (arrays["log_prob"] + 0.5, arrays["log_prob"] - 0.5, wider):
        assert "log_prob" in bearing(bcrl.Dataset.from_arrays(**arrays | {"log_prob": wrong}))


def test_log10_of_a_wide_density_is_found():
    arrays = gaussian(0, 1.0)
    wrong = arrays | {"log_prob": arrays["log_prob"] / np.log(10)}
    assert "log_prob" in bearing(bcrl.Dataset.from_arrays(**wrong))


def test_rows_of_probability_near_zero_are_found():
    world = worlds.random_tabular()
    data = world.dataset(100, 20, 0)
    last = data.offsets[1:] - 1
    log_prob = data.log_prob.copy()
    log_prob[last] = np.log(1e-9)
    odd = dataclasses.replace(data, log_prob=log_prob)
    finding = bearing(odd)["log_prob"]
    assert "100 of 1447" in finding.what and finding.bears.verdict == "distrust"
    estimate = bcrl.evaluate(odd, world.behaviour, discount=0.9, method=bcrl.ImportanceSampling())
    assert estimate.verdict == "distrust" and "log_prob" in names(estimate)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_cuts_that_are_marked_as_ends_are_found(seed):
    case = findings.f17_random_censoring(seed)
    data = log_of(case)
    assert "ends look random" in bearing(data)
    estimate = bcrl.evaluate(data, case.policy, discount=case.discount, method=RANDOM)
    assert estimate.verdict != "trust" and "ends look random" in names(estimate)


@pytest.mark.parametrize("seed", SEEDS)
def test_ends_that_the_state_explains_are_none(seed):
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(200):
        x = rng.uniform(-0.5, 0.5)
        for t in range(60):
            u = rng.normal()
            then = x + 0.2 * u
            ended = abs(then) > 1
            rows.append((x, u, 1.0 - 0.1 * u * u, ended, t == 59 and not ended, then))
            x = then
            if ended:
                break
    x, u, r, ended, cut, then = (np.array(column) for column in zip(*rows, strict=True))
    given = {"observations": x[:, None], "actions": u[:, None], "rewards": r, "truncated": cut}
    for more in ({}, {"next_observations": then[:, None]}):
        assert "ends look random" not in bearing(bcrl.Dataset.from_arrays(**given, terminated=ended, **more))


def copies(dataset, times, noise, seed=0):
    """Each episode so many times, with noise on every number."""
    many, rng = dataset.select(np.tile(np.arange(dataset.num_episodes), times)), np.random.default_rng(seed)
    jitter = lambda array: array + noise * rng.normal(size=array.shape)  # noqa: E731
    return dataclasses.replace(
        many,
        observations={key: jitter(value) for key, value in many.observations.items()},
        rewards=jitter(many.rewards),
        actions=jitter(many.actions),
    )


@pytest.mark.parametrize("noise", [0.0, 1e-9, 1e-6])
def test_copies_with_a_little_noise_are_found(noise):
    world = worlds.lqr()
    data = copies(world.dataset(20, 20, 0), 30, noise)
    finding = bearing(data)["copied episodes"]
    assert finding.what.startswith("580 episodes repeat another one") and "episode" in finding.where
    estimate = bcrl.evaluate(data, world.target, discount=0.9, method=RANDOM)
    assert estimate.verdict == "distrust" and "copied episodes" in names(estimate)


def test_one_copy_among_many_is_found():
    data = worlds.lqr().dataset(50, 20, 0)
    twice = copies(data.select(np.array([*range(50), 7])), 1, 1e-9)
    assert bearing(twice)["copied episodes"].where == "episode 50 = episode 7"


def test_large_integers_are_no_copies_of_each_other():
    rng = np.random.default_rng(0)
    data = bcrl.Dataset.from_arrays(
        observations=rng.integers(0, 50, (400, 1)) + 10**15,
        actions=np.zeros((400, 1)),
        rewards=np.zeros(400),
        terminated=np.arange(400) % 10 == 9,
    )
    assert "copied episodes" not in bearing(data)


@pytest.mark.parametrize("seed", SEEDS)
def test_hidden_patients_are_found(seed):
    case = findings.f13_hidden_patients(seed)
    data = log_of(case)
    assert "hidden groups" in bearing(data)
    named = dataclasses.replace(data, cluster=np.repeat(np.arange(10), 40))
    assert "hidden groups" not in bearing(named)
    estimate = bcrl.evaluate(data, case.policy, discount=0.9, method=RANDOM)
    assert estimate.verdict != "trust" and "hidden groups" in names(estimate)


HEALTHY = [worlds.lqr, worlds.random_tabular, worlds.rich_lqr, worlds.low_rank, worlds.chain, worlds.bandit]
HEALTHY += [worlds.counterexample, worlds.pixel_lqr]


@pytest.mark.parametrize("make", HEALTHY, ids=lambda make: make.__name__)
@pytest.mark.parametrize(("episodes", "length"), [(40, 50), (300, 20)])
def test_exact_worlds_give_no_hint(make, episodes, length):
    for seed in range(3):
        assert set(bearing(make().dataset(episodes, length, seed))) <= {"few transitions"}
