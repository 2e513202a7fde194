"""LSPE through `evaluate`'s own path, on worlds whose values are known exactly."""

import dataclasses

import numpy as np
import pytest
from estimators.spoiled import swapped, unmasked

from bcrl.data.dataset import Dataset
from bcrl.errors import BadInput
from bcrl.estimate import Estimate, Status
from bcrl.estimators.lspe.method import LSPE
from bcrl.policies.load import load_policy
from bcrl.question import starts_of
from bcrl.representations.fixed import GivenFeatures, RandomFeatures
from bcrl_bench.asking import ask
from bcrl_bench.worlds import bandit, chain, counterexample, lqr, random_tabular


def answer(world, dataset, method, **changes):
    asked = {"discount": world.discount} | changes
    return ask(method, dataset, {"target": world.target}, **asked)["target"]


def given(world, **options):
    return LSPE(GivenFeatures(world.features), **options)


@pytest.mark.parametrize("make", [lqr, random_tabular, chain, bandit], ids=lambda f: f.__name__)
def test_exact_features_give_the_exact_value(make):
    world = make()
    estimate = answer(world, world.dataset(1500, 40, seed=1), given(world))
    assert estimate.value == pytest.approx(world.value, rel=0.05)
    # LSPE stops at a relative change of 1e-6, which the chain's deterministic answer shows.
    assert abs(estimate.value - world.value) < 3 * estimate.standard_error + 1e-4 * abs(world.value)


@pytest.mark.parametrize("make", [lqr, random_tabular, chain], ids=lambda f: f.__name__)
def test_random_features_come_close(make):
    world = make()
    estimate = answer(world, world.dataset(800, 40, seed=2), LSPE(RandomFeatures(dim=150)))
    assert estimate.value == pytest.approx(world.value, rel=0.1)


def truncation_taken_for_termination(dataset):
    return dataclasses.replace(dataset, terminated=dataset.terminated | dataset.truncated)


@pytest.mark.parametrize(
    ("make", "spoil"),
    [
        (random_tabular, swapped),
        (lqr, swapped),
        (random_tabular, unmasked),
        (chain, truncation_taken_for_termination),
    ],
    ids=lambda f: f.__name__,
)
def test_a_wrong_reading_of_the_data_gives_a_wrong_value(make, spoil):
    """A test of the tests: these worlds tell the classic mistakes apart from the truth."""
    world = make()
    dataset = world.dataset(1500, 40, seed=1)
    right, wrong = (answer(world, data, given(world)) for data in (dataset, spoil(dataset)))
    assert abs(wrong.value - world.value) > 3 * abs(right.value - world.value) + 0.05 * abs(world.value)


def test_the_policy_is_asked_at_the_next_state():
    """pi(s) in place of pi(s') changes the answer: who confuses them fails the tests above."""
    world = random_tabular()
    dataset = world.dataset(1500, 40, seed=1)

    class Late:
        """Answers for the observation one row earlier."""

        reads = None

        def probabilities(self, observations):
            return world.target.probabilities(np.concatenate([observations[:1], observations[:-1]]))

    wrong = ask(given(world), dataset, {"late": Late()}, discount=world.discount)["late"]
    assert abs(wrong.value - world.value) > 0.05 * abs(world.value)


def test_the_counterexample_may_be_seen_to_blow_up():
    world = counterexample()
    estimate = answer(world, world.dataset(200, 50, seed=0), given(world, fallback=None))
    assert estimate.stats["spectral_radius"] > 1.0
    assert estimate.status is Status.DIVERGED
    assert estimate.verdict == "distrust"
    assert np.isnan(estimate.value)
    assert estimate.interval is None
    assert any("blows up" in reason for reason in estimate.reasons)


@pytest.mark.parametrize("horizon", [1, 7])
def test_a_horizon_counts_its_steps(horizon):
    world = random_tabular()
    dataset = world.dataset(3000, 20, seed=3)
    estimate = answer(world, dataset, given(world), horizon=horizon, discount=1.0)
    exact = world.horizon_value(horizon, 1.0)
    assert estimate.status is Status.HORIZON
    assert abs(estimate.value - exact) < max(4 * estimate.standard_error, 1e-9)
    assert estimate.standard_error < 0.1 * abs(exact)


def test_discount_zero_is_the_first_reward():
    world = random_tabular()
    dataset = world.dataset(3000, 5, seed=4)
    estimate = answer(world, dataset, given(world), discount=0.0)
    assert abs(estimate.value - world.horizon_value(1, 1.0)) < 4 * estimate.standard_error


@pytest.mark.parametrize("split", ["half", "cross"])
def test_splits_agree_with_all_data_at_once(split):
    world = random_tabular()
    dataset = world.dataset(2000, 40, seed=5)
    once, parts = answer(world, dataset, given(world)), answer(world, dataset, given(world, split=split))
    assert abs(once.value - parts.value) < 4 * parts.standard_error
    assert parts.standard_error > 0.8 * once.standard_error
    expected = np.sqrt(2) if split == "half" else 1.0
    assert parts.standard_error / once.standard_error == pytest.approx(expected, rel=0.35)


def test_clusters_widen_the_interval():
    """Episodes of one cluster that are copies of one another count once."""
    world = lqr()
    dataset = world.dataset(60, 30, seed=6)
    copies = dataset.select(np.repeat(np.arange(60), 4))
    known = dataclasses.replace(copies, cluster=np.repeat(np.arange(60), 4))
    once, wrong, right = (answer(world, data, given(world)) for data in (dataset, copies, known))
    assert right.standard_error == pytest.approx(once.standard_error, rel=0.05)
    assert wrong.standard_error < 0.6 * once.standard_error


def test_given_starts_have_their_own_variance():
    world = lqr()
    dataset = world.dataset(300, 30, seed=7)
    one = dataset.start_observations()["observation"][:1]
    estimate = answer(world, dataset, given(world), starts=starts_of(dataset, one))
    assert estimate.stats["variance_of_given_starts"] == 0.0
    assert estimate.value == pytest.approx(float(world.v(one)[0]), rel=0.1)
    assert len(estimate.per_start) == 1


def test_value_at_is_v_everywhere():
    world = lqr()
    dataset = world.dataset(2000, 30, seed=8)
    estimate = answer(world, dataset, given(world))
    points = dataset.start_observations()["observation"][:50]
    values, low, high = estimate.value_at(points, interval=True)
    truth = world.v(points)
    assert np.abs(values - truth).max() < 0.1 * np.abs(truth).max()
    assert np.mean((low <= truth) & (truth <= high)) > 0.8
    np.testing.assert_array_equal(values, estimate.value_at({"observation": points}))
    np.testing.assert_allclose(estimate.per_start[:50], values, rtol=1e-12)


def test_json_both_ways():
    world = random_tabular()
    estimate = answer(world, world.dataset(100, 20, seed=9), given(world))
    again = Estimate.from_json(estimate.to_json())
    assert again.to_json() == estimate.to_json()
    assert again.verdict == estimate.verdict
    with pytest.raises(BadInput, match="load_estimate"):
        again.value_at(np.zeros((1, 1)))


def test_the_same_seed_gives_the_same_bits():
    world = lqr()
    dataset = world.dataset(100, 20, seed=10)
    one, two = (answer(world, dataset, LSPE(RandomFeatures(dim=60))) for _ in range(2))
    assert one.to_json() == two.to_json()
    other = answer(world, dataset, LSPE(RandomFeatures(dim=60)), seed=1)
    assert other.value != one.value


def test_the_self_check_notices_features_that_miss_the_point():
    world = lqr()
    dataset = world.dataset(400, 40, seed=11)
    good = answer(world, dataset, given(world))
    blind = answer(world, dataset, LSPE(GivenFeatures(lambda s, a: np.ones((len(s), 1)))))
    by_name = {check.name: check for check in good.checks}
    assert by_name["self-check"].verdict == "trust"
    assert good.verdict == "trust"
    assert blind.verdict != "trust"


def stayers_and_leavers(labels):
    """Two states in turn; the second may be left for good: one policy never does (40 steps), one at once."""

    def episode(number):
        steps, stays = (40, True) if number % 2 else (2, False)
        state, action = np.arange(steps + 1) % 2, np.ones(steps, dtype=np.int64)
        action[-1] = int(stays)
        rewards = (state[:-1] * action).astype(np.float64)
        made = {
            "observations": np.eye(2)[state],
            "actions": action,
            "rewards": rewards,
            "terminated": not stays,
        }
        return made | ({} if labels is None else {"behaviour": labels(number)})

    return Dataset.from_episodes([episode(number) for number in range(80)], num_actions=2)


def test_the_self_check_asks_each_logging_policy_on_its_own_episodes():
    """Together two policies have the value of neither: exact features are right on each part alone."""
    table = LSPE(GivenFeatures(lambda s, a: (s[:, :, None] * np.eye(2)[a][:, None]).reshape(len(s), -1)))
    stay = load_policy(lambda observations: np.ones(len(observations), dtype=np.int64), num_actions=2)

    def off(labels):
        data = stayers_and_leavers(labels)
        found = ask(table, data, {"stay": stay}, discount=0.9)["stay"].stats
        return abs(found["self_check_gap"]) / found["self_check_scale"]

    assert off(lambda number: f"policy {number % 2}") < 0.01
    stray = off(lambda number: "stray" if number == 0 else f"policy {number % 2}")
    assert 0.0 < stray < 0.01  # still asked, though the stray's two rows are too few
    assert off(None) > 0.5
    assert off(lambda number: number) == pytest.approx(
        off(None)
    )  # an episode each: too few rows for a value of its own


@pytest.mark.slow
@pytest.mark.parametrize("episodes", [30, 100, 400])
@pytest.mark.parametrize("make", [lqr, random_tabular], ids=lambda f: f.__name__)
def test_coverage_of_the_interval_through_the_estimator(make, episodes):
    """tests/linear covers the formula; this covers the path a user takes."""
    world = make()
    hits = 0
    for seed in range(60):
        estimate = answer(world, world.dataset(episodes, 30, seed=1000 + seed), given(world))
        hits += world.value in estimate.interval
    assert hits / 60 >= 0.85
