"""Importance sampling against enumeration, plain loops and exact worlds."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bcrl.errors import BadInput
from bcrl.estimate import Status
from bcrl.estimators.weighting.density import NoisyPolicy
from bcrl.estimators.weighting.importance import ImportanceSampling
from bcrl.estimators.weighting.weights import Weights, effective_sample_size, pareto_k, weighted_sum
from bcrl.question import Starts, starts_of
from bcrl.training import Run
from bcrl_bench.asking import ask
from bcrl_bench.worlds import bandit, chain, lqr, random_tabular
from bcrl_bench.worlds.base import to_dataset

KINDS = ("trajectory", "per_decision")


def value_of(method, dataset, policy, discount, horizon=None):
    given = {"discount": discount, "horizon": horizon, "starts": starts_of(dataset), "seed": 0, "run": Run()}
    return ask(method, dataset, {"target": policy}, **given)["target"]


def every_episode(world):
    """All action sequences of the deterministic ring once: exactly its behaviour policy's distribution."""
    length = len(world.first)
    codes = np.concatenate([world.codes, world.codes[:1]]).astype(np.float32)
    episodes = [
        {
            "observations": codes,
            "actions": np.array(actions),
            "rewards": world.reward[np.arange(length), actions],
            "terminated": np.zeros(length, dtype=bool),
            "truncated": np.arange(length) == length - 1,
            "log_prob": np.full(length, np.log(0.5)),
        }
        for actions in itertools.product([0, 1], repeat=length)
    ]
    return to_dataset(world, episodes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("self_normalised", [False, True])
@pytest.mark.parametrize("discount", [0.0, 0.7, 1.0])
def test_all_episodes_give_the_exact_value(kind, self_normalised, discount):
    world = chain()
    estimate = value_of(
        ImportanceSampling(kind, self_normalised), every_episode(world), world.target, discount, 6
    )
    assert estimate.value == pytest.approx(world.horizon_value(6, discount), rel=1e-12)


@pytest.mark.parametrize("horizon", [1, 3])
def test_a_horizon_cuts_weights_and_rewards(horizon):
    world = chain()
    for kind in KINDS:
        estimate = value_of(ImportanceSampling(kind, False), every_episode(world), world.target, 0.9, horizon)
        assert estimate.value == pytest.approx(world.horizon_value(horizon, 0.9), rel=1e-12)


def loops(world, episodes, discount, kind, self_normalised):
    """The textbook sums, one episode and step at a time; all episodes terminate or have full length."""
    longest = max(len(e["rewards"]) for e in episodes)
    weights, rewards = np.ones((len(episodes), longest)), np.zeros((len(episodes), longest))
    for i, e in enumerate(episodes):
        w = 1.0
        for t in range(longest):
            if t < len(e["rewards"]):
                state = int(e["observations"][t].argmax())
                w *= world.target_table[state, e["actions"][t]] / np.exp(e["log_prob"][t])
                rewards[i, t] = e["rewards"][t]
            weights[i, t] = w
    gamma = discount ** np.arange(longest)
    if kind == "trajectory":
        total = weights[:, -1].sum() if self_normalised else len(episodes)
        return (weights[:, -1] * (rewards @ gamma)).sum() / total
    total = weights.sum(axis=0) if self_normalised else len(episodes)
    return (gamma * (weights * rewards).sum(axis=0) / total).sum()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("self_normalised", [False, True])
def test_equals_plain_loops_with_terminations(kind, self_normalised):
    world = random_tabular()
    episodes = world.episodes(60, 12, np.random.default_rng(1))
    assert any(len(e["rewards"]) < 12 for e in episodes)
    got = value_of(ImportanceSampling(kind, self_normalised), to_dataset(world, episodes), world.target, 0.9)
    assert got.value == pytest.approx(loops(world, episodes, 0.9, kind, self_normalised), rel=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_cover_as_promised(kind):
    world = bandit()
    inside = 0
    for seed in range(200):
        estimate = value_of(ImportanceSampling(kind), world.dataset(300, 1, seed), world.target, 0.0)
        inside += world.value in estimate.interval
    assert 0.90 <= inside / 200 <= 0.99


def test_influence_adds_up_and_follows_clusters():
    world = random_tabular()
    dataset = world.dataset(40, 6, 0)
    paired = replace(dataset, cluster=np.repeat(np.arange(20), 2))
    estimate = value_of(ImportanceSampling(), paired, world.target, 0.9)
    assert estimate.influence.shape == (20,)
    assert estimate.standard_error == pytest.approx(np.sqrt((estimate.influence**2).sum()))
    twice = dataset.select(np.repeat(np.arange(40), 2))
    copies = replace(twice, cluster=np.repeat(np.arange(40), 2))
    single, doubled = (value_of(ImportanceSampling(), d, world.target, 0.9) for d in (dataset, copies))
    assert doubled.standard_error == pytest.approx(single.standard_error)


def test_random_cuts_of_the_record_do_not_bias_per_decision_weights():
    world = chain()
    whole = world.episodes(4000, 6, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    cut = []
    for episode in whole:
        length = int(rng.integers(3, 7))
        short = {key: value[:length] for key, value in episode.items() if key != "observations"}
        short["truncated"] = np.arange(length) == length - 1
        cut.append(short | {"observations": episode["observations"][: length + 1]})
    estimate = value_of(ImportanceSampling(), to_dataset(world, cut), world.target, 0.9, 6)
    assert abs(estimate.value - world.horizon_value(6, 0.9)) < 4 * estimate.standard_error


def test_degenerate_weights_are_reported():
    world = random_tabular(discount=0.99)
    estimate = value_of(ImportanceSampling(), world.dataset(30, 100, 0), world.target, 0.99)
    assert estimate.stats["effective_sample_size"] < 5
    assert estimate.status is Status.DEGENERATE and estimate.verdict == "distrust"
    fine = value_of(ImportanceSampling(), world.dataset(500, 20, 0, world.target), world.target, 0.5)
    assert fine.stats["effective_sample_size"] == pytest.approx(500) and fine.verdict == "trust"


def test_the_tail_of_the_record_is_stated():
    world = chain()
    short = value_of(ImportanceSampling(), every_episode(world), world.target, 0.9)
    check = next(c for c in short.checks if c.name == "value beyond the records")
    assert check.value == pytest.approx(0.9**6) and check.verdict == "distrust"
    # The ring repeats itself, so what is missing is exactly gamma^T of the value.
    assert short.value == pytest.approx((1 - 0.9**6) * world.value)


def test_a_deterministic_continuous_policy_asks_for_a_bandwidth():
    world = lqr()
    dataset = world.dataset(50, 3, 0)
    with pytest.raises(BadInput, match="bandwidth") as caught:
        value_of(ImportanceSampling(), dataset, world.target, 0.9)
    assert "\n" not in str(caught.value)


def test_with_a_bandwidth_the_value_is_that_of_the_noisy_policy():
    noisy = lqr(target_std=0.5)
    world = lqr()
    dataset = noisy.dataset(20000, 3, 0)
    estimate = value_of(ImportanceSampling(bandwidth=0.5), dataset, world.target, 0.9, 3)
    assert abs(estimate.value - noisy.horizon_value(3, 0.9)) < 4 * estimate.standard_error
    assert any("noise" in check.name for check in estimate.checks)


def test_many_draws_of_a_noisy_policy_ask_it_once_and_are_those_of_one_after_another():
    asked = []

    class Watched:
        reads = None

        def act(self, observations):
            asked.append(len(observations))
            return 0.9 * np.asarray(observations)[:, :2]

    policy, seen = NoisyPolicy(Watched(), 0.3, (-1.0, 1.0)), np.linspace(-1.0, 1.0, 30).reshape(10, 3)
    many = policy.sample_many(seen, np.random.default_rng(5), 4)
    assert asked == [10] and many.shape == (10, 4, 2)
    generator = np.random.default_rng(5)
    one_by_one = np.stack([policy.sample(seen, generator) for _ in range(4)], axis=1)
    assert np.array_equal(many, one_by_one)


def test_noisy_policy_is_a_distribution_inside_its_bounds():
    class Edge:
        reads = None

        def act(self, observations):
            return np.full((len(observations), 1), 0.9)

    policy = NoisyPolicy(Edge(), 0.3, (-1.0, 1.0))
    seen = np.zeros((20000, 1))
    actions = policy.sample(seen, np.random.default_rng(0))
    reference = stats.truncnorm(-1.9 / 0.3, 0.1 / 0.3, loc=0.9, scale=0.3)
    assert np.abs(actions).max() <= 1.0 and abs(actions.mean() - reference.mean()) < 0.01
    np.testing.assert_allclose(policy.log_prob(seen[:100], actions[:100]), reference.logpdf(actions[:100, 0]))


def test_a_deterministic_discrete_policy_needs_no_bandwidth():
    world = bandit()

    class First:
        reads = None

        def act(self, observations):
            return np.zeros(len(observations), dtype=np.int64)

    estimate = value_of(ImportanceSampling(), world.dataset(4000, 1, 0), First(), 0.0)
    assert abs(estimate.value - world.first @ world.reward[:, 0]) < 4 * estimate.standard_error


def test_other_start_states_and_unordered_data_are_refused():
    world = chain()
    dataset = every_episode(world)
    elsewhere = Starts({"observation": world.codes[:2].astype(np.float32)}, None)
    with pytest.raises(BadInput, match="start states"):
        ask(ImportanceSampling(), dataset, {"t": world.target}, discount=0.9, starts=elsewhere)
    with pytest.raises(BadInput, match="unordered"):
        value_of(
            ImportanceSampling(),
            replace(dataset, ordered=False, given_starts={"observation": world.codes}),
            world.target,
            0.9,
        )


def test_weights_that_overflow_do_not_pass_silently():
    log = np.array([[800.0], [0.0], [1.0]])
    weights = Weights(log, np.ones_like(log, dtype=bool), np.arange(3)[:, None], np.ones(1))
    plain, _ = weighted_sum(weights, np.ones((3, 1)), self_normalised=False)
    shared, _ = weighted_sum(weights, np.ones((3, 1)), self_normalised=True)
    assert not np.isfinite(plain) and shared == pytest.approx(1.0)
    assert effective_sample_size(weights)[0] == pytest.approx(1.0)


@pytest.mark.parametrize("shape", [0.3, 0.9])
def test_pareto_k_finds_the_shape_of_a_pareto_tail(shape):
    draws = stats.genpareto(shape).rvs(20000, random_state=np.random.default_rng(0))
    assert pareto_k(np.log(draws)) == pytest.approx(shape, abs=0.15)
    assert pareto_k(np.zeros(100)) == 0.0 and pareto_k(np.zeros(4)) is None


def test_clipping_is_dope_s_and_optional():
    world = random_tabular()
    dataset = world.dataset(50, 5, 0)
    plain = value_of(ImportanceSampling(), dataset, world.target, 0.9).value
    clipped = value_of(ImportanceSampling(clip=(-0.1, 0.1)), dataset, world.target, 0.9).value
    assert plain != clipped
    assert ImportanceSampling.dope().clip == (-6.0, 2.0)
