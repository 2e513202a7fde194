"""Anchored evaluation on worlds whose values are known exactly, and mistakes that must show."""

import dataclasses

import numpy as np
import pytest
from estimators.spoiled import swapped, unmasked

import bcrl
from bcrl.data.build.combine import concatenate
from bcrl.data.dataset import Dataset
from bcrl.errors import BadInput
from bcrl.estimate import Estimate
from bcrl.estimators.anchored.anchor import Anchor, own_rows, pieces
from bcrl.estimators.anchored.method import Anchored
from bcrl.estimators.anchored.returns import loggers, state_features
from bcrl.inference.contrast import difference_to, discounted_returns, logged_value
from bcrl.question import Question
from bcrl.representations.features import Encoded
from bcrl.representations.fixed import GivenFeatures, RandomFeatures
from bcrl.training import Run
from bcrl_bench.asking import ask_one
from bcrl_bench.worlds import bandit, chain, lqr, random_tabular


def given(world, **options):
    return Anchored(GivenFeatures(world.features), **options)


def answer(world, dataset, method, **changes):
    asked = {"policy": world.target, "discount": world.discount} | changes
    return ask_one(method, dataset, **asked)


WORLDS = {
    "lqr": lqr(),
    "stochastic lqr": lqr(target_std=0.3),
    "tabular": random_tabular(),
    "chain": chain(),
    "bandit": bandit(),
}


@pytest.mark.parametrize("name", WORLDS)
def test_exact_features_give_the_exact_value(name):
    world = WORLDS[name]
    estimate = answer(world, world.dataset(800, 40, seed=1), given(world))
    assert abs(estimate.value - world.value) < 3 * estimate.standard_error
    assert estimate.value == pytest.approx(world.value, rel=0.08)
    assert estimate.stats["logged_value"] + estimate.stats["gain"] == pytest.approx(estimate.value)


@pytest.mark.parametrize("name", ["lqr", "tabular"])
def test_random_features_come_close(name):
    world = WORLDS[name]
    estimate = answer(world, world.dataset(500, 40, seed=3), Anchored(RandomFeatures(dim=100)))
    assert estimate.value == pytest.approx(world.value, rel=0.1)


class Replayed:
    """Does at every logged observation what was logged there; anything at final ones."""

    reads = None

    def __init__(self, dataset):
        seen = dataset.observations["observation"]
        self.known = {seen[row].tobytes(): dataset.actions[i] for i, row in enumerate(dataset.rows)}
        self.other = np.zeros_like(dataset.actions[0])

    def act(self, observations):
        return np.stack([self.known.get(row.tobytes(), self.other) for row in observations])


def ended(dataset):
    """Every episode's last step ends the world."""
    return dataclasses.replace(
        dataset,
        terminated=dataset.terminated | dataset.truncated,
        truncated=np.zeros_like(dataset.truncated),
    )


def test_asked_for_the_logged_actions_it_returns_the_logged_mean_exactly():
    data = ended(lqr().dataset(60, 15, seed=4))
    estimate = ask_one(Anchored(RandomFeatures(dim=50)), data, Replayed(data), 0.9)
    assert estimate.stats["gain"] == 0.0
    assert estimate.value == discounted_returns(data, 0.9).mean()
    error = logged_value(data, discount=0.9, horizon=None).standard_error
    assert estimate.standard_error == pytest.approx(error, rel=1e-9)


@pytest.mark.parametrize("name", ["lqr", "tabular", "chain"])
def test_asked_for_the_logging_policy_it_returns_the_logged_mean_within_its_error(name):
    world = WORLDS[name]
    data = world.dataset(400, 40, seed=5)
    estimate = answer(world, data, given(world), policy=world.behaviour)
    assert abs(estimate.stats["gain"]) < estimate.standard_error
    assert estimate.value == pytest.approx(estimate.stats["logged_value"], abs=estimate.standard_error)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [("tabular", swapped), ("lqr", swapped), ("tabular", unmasked), ("chain", ended)],
    ids=lambda one: one if isinstance(one, str) else one.__name__,
)
def test_a_wrong_reading_of_the_data_gives_a_wrong_value(name, spoil):
    world = WORLDS[name]
    data = world.dataset(800, 40 if spoil is not ended else 6, seed=1)
    right, wrong = (answer(world, one, given(world)) for one in (data, spoil(data)))
    assert abs(wrong.value - world.value) > 2 * abs(right.value - world.value) + 0.05 * abs(world.value)


@pytest.mark.parametrize("shift", [1, -1])
def test_the_policy_is_asked_at_the_right_state(shift):
    """pi(s') for pi(s), or the other way round, changes the answer."""
    world = WORLDS["tabular"]

    class Off:
        reads = None

        def probabilities(self, observations):
            return world.target.probabilities(np.roll(observations, shift, axis=0))

    wrong = answer(world, world.dataset(800, 40, seed=1), given(world), policy=Off())
    assert abs(wrong.value - world.value) > 0.05 * abs(world.value)


def test_q_at_the_logged_action_under_pair_weights_is_the_trap():
    """Weights of pairs prefer rows whose action is the policy's: Delta is small there, and the gain goes."""
    world = WORLDS["tabular"]
    data = world.dataset(800, 40, seed=1)
    question = Question.of(data, {"target": world.target}, discount=world.discount)
    method = given(world)
    target = question.targets["target"]
    phi = method.representation.fit(data, [target.actions], discount=world.discount, seed=0, run=Run())
    encoded = Encoded.of(data, phi)
    states = state_features(encoded)
    anchors = [Anchor.of(encoded, states, one, world.discount, 1.0, None) for one in loggers(data, 4, seed=0)]
    found = method._answer(question, target, encoded, anchors, None)
    trapped = 0.0
    for rows in pieces(encoded, target.actions):
        own = own_rows(anchors[0], rows)
        trapped += float((rows.logged[own.piece] @ found.way.weights) @ own.delta) / len(data)
    gain = world.value - found.base(0)
    assert found.gain(0) == pytest.approx(gain, rel=0.25)
    assert trapped < 0.5 * gain


def two_steps(labels, episodes=600):
    """First an action without effect, then one that is the reward. One policy likes 1 at both, another 0."""
    rng = np.random.default_rng(0)
    made = []
    for number in range(episodes):
        likes = 0.9 if number % 2 else 0.1
        actions = (rng.random(2) < likes).astype(np.int64)
        one = {
            "observations": np.eye(3)[[0, 1, 2]],
            "actions": actions,
            "rewards": np.array([0.0, float(actions[1])]),
            "terminated": True,
        }
        made.append(one | ({} if labels is None else {"behaviour": labels(number)}))
    return Dataset.from_episodes(made, num_actions=2)


class FirstOne:
    """Takes 1 first, then either: worth 0.5."""

    reads = None

    def probabilities(self, observations):
        first = observations[:, :1] > 0.5
        return np.where(first, [[0.0, 1.0]], [[0.5, 0.5]])


def test_a_good_policys_action_looks_good_because_of_who_acts_later():
    table = Anchored(GivenFeatures(lambda s, a: (s[:, :, None] * np.eye(2)[a][:, None]).reshape(len(s), -1)))

    def value(labels):
        return ask_one(table, two_steps(labels), FirstOne(), 1.0 - 1e-9)

    mixture = value(lambda number: f"policy {number % 2}")
    assert mixture.value == pytest.approx(0.5, abs=0.06) and mixture.stats["anchors"] == 2
    replay = value(lambda number: number)  # too many policies to tell apart
    assert replay.value == pytest.approx(0.5, abs=0.06) and replay.stats["bootstrapped"] == 1
    assert any("mixture" in reason for reason in replay.reasons)
    assert value(None).value > 0.7  # a test of the test: taken for one policy's, the returns mislead


def test_a_log_that_holds_the_target_too_is_answered_by_it():
    world = WORLDS["tabular"]
    parts = [
        dataclasses.replace(data, behaviour=np.full(data.num_episodes, name))
        for name, data in (
            ("old", world.dataset(150, 40, seed=6)),
            ("new", world.dataset(150, 40, seed=7, policy=world.target)),
        )
    ]
    both = concatenate(parts)
    alone, mixed = (answer(world, data, given(world)) for data in (parts[0], both))
    assert abs(mixed.value - world.value) < 3 * mixed.standard_error
    assert mixed.standard_error < 0.9 * alone.standard_error


def test_cut_records_are_closed_on_policy_and_the_share_is_told():
    world = WORLDS["chain"]
    long, short = (answer(world, world.dataset(800, length, seed=8), given(world)) for length in (60, 6))
    assert short.stats["tail_share"] == pytest.approx(0.9**6) and long.stats["tail_share"] < 0.01
    assert abs(short.value - world.value) < 3 * short.standard_error
    assert any(check.name == "bootstrapped tail" and check.verdict == "caution" for check in short.checks)


def test_starts_from_elsewhere():
    world = lqr()
    data = world.dataset(800, 30, seed=9)
    one = np.array([[1.0, 0.5]])
    estimate = answer(world, data, given(world), starts=one)
    assert estimate.value == pytest.approx(float(world.v(one)[0]), rel=0.15)
    points = data.start_observations()["observation"][:40]
    own = answer(world, data, given(world))
    assert np.corrcoef(own.value_at(points), world.v(points))[0, 1] > 0.97


def test_numbers_and_files_both_ways(tmp_path):
    world = lqr()
    data = world.dataset(60, 20, seed=10)
    method = Anchored(RandomFeatures(dim=40))
    one, two = (answer(world, data, method) for _ in range(2))
    assert one.to_json() == two.to_json()
    assert Estimate.from_json(one.to_json()).to_json() == one.to_json()
    one.save(tmp_path / "kept")
    again = bcrl.load_estimate(tmp_path / "kept", policy=world.target)
    points = data.start_observations()["observation"]
    np.testing.assert_array_equal(again.value_at(points), one.value_at(points))
    assert difference_to(one, logged_value(data, discount=0.9, horizon=None)).paired
    assert any("deterministic" in check.meaning for check in one.checks)


def test_a_horizon_is_refused():
    world = lqr()
    with pytest.raises(BadInput, match="horizon=5"):
        answer(world, world.dataset(5, 5, seed=0), given(world), horizon=5)


def test_one_unit_and_no_order_are_refused():
    world = lqr()
    with pytest.raises(BadInput, match="one unit"):
        answer(world, world.dataset(1, 50, seed=0), given(world))
    data = world.dataset(5, 5, seed=0)
    seen = data.observations["observation"]
    loose = Dataset.from_transitions(
        seen[data.rows],
        data.actions,
        data.rewards,
        seen[data.rows + 1],
        data.terminated,
        seen[data.start_rows],
    )
    with pytest.raises(BadInput, match="reads whole episodes"):
        answer(world, loose, given(world))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lqr", "tabular", "chain"])
def test_the_interval_holds_the_truth(name):
    world = WORLDS[name]
    hits = sum(
        world.value in answer(world, world.dataset(100, 40, seed=2000 + seed), given(world)).interval
        for seed in range(60)
    )
    assert hits >= 49
