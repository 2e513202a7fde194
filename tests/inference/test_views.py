"""Independent views: their values, their weights, and the corrections that they make to a wrong Q."""

import numpy as np
import pytest

import bcrl
from bcrl.inference.evidence import Evidence, td_of, unlike_actions
from bcrl.inference.inputs import inputs_of
from bcrl.inference.views.linear import closed_returns, linear_views
from bcrl.policies import load_policy
from bcrl.policies.policy import TargetActions, resolve_policy
from bcrl.question import Question
from bcrl_bench.worlds import lqr, random_tabular
from bcrl_bench.worlds.findings import f6_truncated_tail, f8_noise_in_half


def asked(world, episodes=150, length=40):
    dataset = world.dataset(episodes, length, 1)
    return Question.of(dataset, {"target": world.target}, discount=world.discount)


@pytest.fixture(scope="module")
def tabular():
    world = random_tabular(0)
    question = asked(world)
    return world, question, Evidence.of(question, question.targets["target"])


def test_every_view_of_a_tabular_world_is_near_the_truth(tabular):
    world, _, evidence = tabular
    assert len(evidence.views) >= 5
    for view in evidence.views:
        assert view.value == pytest.approx(world.value, rel=0.12), view.name


def test_weights_are_visits_so_that_they_add_up_to_the_lifetime_and_to_the_value():
    world = lqr(0)
    question = asked(world)
    evidence = Evidence.of(question, question.targets["target"])
    for view in evidence.views:
        assert view.weights.sum() == pytest.approx(1.0 / (1.0 - world.discount), rel=0.05), view.name
        if not view.name.startswith("returns"):
            assert view.weights @ evidence.inputs.rewards == pytest.approx(view.value)


def test_views_correct_a_wrong_q_and_leave_the_exact_one_alone(tabular):
    world, question, evidence = tabular
    target = question.targets["target"]

    def exact(observations, actions):
        return world.q(next(iter(observations.values())), actions.argmax(axis=1))

    def wrong(observations, actions):
        return exact(observations, actions) - 3.0

    right, off = (td_of(q, question, target, evidence.inputs) for q in (exact, wrong))
    left, made = evidence.corrections(right), evidence.corrections(off)
    assert np.median(np.abs(list(left.values()))) < 0.06 * world.value  # the sampling error of TD errors
    for name in left:
        assert made[name] - left[name] == pytest.approx(3.0, rel=0.1), name


def test_td_errors_know_where_an_episode_ends(tabular):
    world, question, evidence = tabular
    td = td_of(lambda o, a: np.ones(len(a)), question, question.targets["target"], evidence.inputs)
    ended = evidence.inputs.terminated
    assert ended.any()
    assert td[ended] == pytest.approx(evidence.inputs.rewards[ended] - 1.0)
    assert td[~ended] == pytest.approx(evidence.inputs.rewards[~ended] + world.discount - 1.0)


def test_returns_of_cut_records_are_closed():
    case = f6_truncated_tail()
    from bcrl import Dataset

    dataset = Dataset.from_arrays(**case.arrays)
    question = Question.of(dataset, {"p": _constant(0.0)}, discount=case.discount)
    inputs = inputs_of(question, question.targets["p"])
    open_ended = closed_returns(inputs, np.zeros(len(inputs.here)), case.discount)
    closed = closed_returns(inputs, np.full(len(inputs.here), 10.0), case.discount)
    first = inputs.logged_starts
    assert open_ended[first].mean() == pytest.approx(6.1, abs=0.1)  # nine rewards of one
    assert closed[first].mean() == pytest.approx(10.0, abs=0.1)
    evidence = Evidence.of(question, question.targets["p"])
    assert evidence.highest > 9.5


def test_actions_are_unlike_where_the_log_never_varied():
    from bcrl import Dataset

    case = f8_noise_in_half()
    dataset = Dataset.from_arrays(**case.arrays)
    found = {}
    for name, action in (("one", 1.0), ("zero", 0.0)):
        question = Question.of(dataset, {"p": _constant(action)}, discount=case.discount)
        inputs = inputs_of(question, question.targets["p"])
        found[name] = unlike_actions(inputs, np.ones(len(inputs.here)), np.random.default_rng(0))
    assert found["one"] == pytest.approx(0.5, abs=0.1)  # half of the states have no noise
    assert found["zero"] < 0.1


def test_many_actions_are_drawn_by_their_probabilities():
    from bcrl.inference.codes import drawn

    table = np.array([[0.5, 0.25, 0.25] + [0.0] * 20] * 400)
    eye = np.broadcast_to(np.eye(23, dtype=np.float32), (400, 23, 23))
    few = drawn(TargetActions(eye, table, exact=True), np.random.default_rng(0))
    assert few.actions.shape == (400, 6, 23)
    assert few.actions.mean(axis=(0, 1))[:3] == pytest.approx([0.5, 0.25, 0.25], abs=0.02)


class _constant:
    reads = None

    def __init__(self, action):
        self.action = action

    def act(self, observations):
        return np.full((len(observations), 1), self.action)


@pytest.mark.parametrize("horizon", [1, 2, 7, 64, 1000])
def test_powers_are_summed_by_doubling(horizon):
    from bcrl.inference.views.linear import _power_sum

    matrix = np.array([[0.5, 0.2], [-0.1, 0.9]])
    plain = sum(np.linalg.matrix_power(matrix, k) for k in range(horizon))
    assert _power_sum(matrix, horizon) == pytest.approx(plain)


def test_views_answer_a_horizon():
    world = lqr(0)
    dataset = world.dataset(150, 40, 1)
    question = Question.of(dataset, {"target": world.target}, discount=1.0, horizon=15)
    evidence = Evidence.of(question, question.targets["target"])
    truth = world.horizon_value(15, 1.0)
    assert np.median([view.value for view in evidence.views]) == pytest.approx(truth, rel=0.15)
    assert all(view.weights.sum() == pytest.approx(15.0, rel=0.1) for view in evidence.views)


@pytest.mark.parametrize("horizon", [None, 150])
def test_no_view_says_what_no_rewards_allow(horizon):
    """Few rows, and a policy far outside: the smallest ridge says -2,000 to 10^18 for at most 100 or 150."""
    from bcrl.inference.views.linear import allowed

    rng = np.random.default_rng(0)
    count = 300
    observations = rng.normal(size=(count, 3))
    dataset = bcrl.Dataset.from_transitions(
        observations=observations,
        actions=0.1 * rng.normal(size=(count, 1)),
        rewards=rng.uniform(0.0, 1.0, count),
        next_observations=1.02 * observations + 0.1 * rng.normal(size=(count, 3)),
        terminated=np.arange(count) % 15 == 14,
        start_observations=observations[::15],
    )
    policy = resolve_policy(dataset, load_policy(lambda x: 2.0 * x[:, :1]))
    question = Question.of(dataset, {"far": policy}, discount=0.99, horizon=horizon)
    inputs = inputs_of(question, question.targets["far"])
    low, high = allowed(inputs, 0.99, horizon)
    assert -20.0 < low <= 0.0 < high < 120.0
    views = linear_views(inputs, 0.99, horizon, np.random.default_rng(1))
    assert [view.name for view in views if not low <= view.value <= high] == []
