"""Doubly robust: right with either half right, wrong with the mask dropped or the indices swapped."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from bcrl.errors import BadInput
from bcrl.estimate import Estimate, Status
from bcrl.estimators.fqe.method import FQE
from bcrl.estimators.lspe.method import LSPE
from bcrl.estimators.weighting import doubly_robust
from bcrl.estimators.weighting.doubly_robust import DoublyRobust, values_along
from bcrl.question import Starts, starts_of
from bcrl.representations.fixed import RandomFeatures
from bcrl.training import Run
from bcrl_bench.asking import ask
from bcrl_bench.worlds import bandit, chain, lqr, random_tabular


@dataclass(frozen=True)
class TableFunction:
    """V and Q from tables, right or wrong."""

    q_table: np.ndarray
    policy: np.ndarray

    def value(self, observations):
        return (self.policy * self.q_table).sum(axis=1)[observations["observation"].argmax(axis=1)]

    def q(self, observations, actions):
        return self.q_table[observations["observation"].argmax(axis=1), actions.argmax(axis=1)]


@dataclass(frozen=True)
class GivenQ:
    """A method whose Q is known beforehand."""

    function: object

    def estimate(self, question, run):
        first = self.function.value(question.dataset.start_observations())
        one = Estimate(float(first.mean()), "given", question.discount, value_function=self.function)
        return dict.fromkeys(question.targets, one)


def run_it(method, dataset, policy, discount, starts=None, horizon=None):
    given = {"discount": discount, "horizon": horizon, "seed": 0, "run": Run()}
    starts = starts_of(dataset) if starts is None else starts
    return ask(method, dataset, {"t": policy}, starts=starts, **given)["t"]


def wrong(world, seed=0):
    """A Q that is far off."""
    noise = np.random.default_rng(seed).normal(size=world.reward.shape)
    return TableFunction(world.action_values + 0.5 * noise + 1.0, world.target_table)


@pytest.fixture(scope="module")
def world():
    return random_tabular(discount=0.7)


@pytest.fixture(scope="module")
def dataset(world):
    return world.dataset(8000, 20, 0)


@pytest.mark.parametrize("weighted", [False, True])
def test_right_weights_mend_a_wrong_q(world, dataset, weighted):
    model = wrong(world)
    estimate = run_it(DoublyRobust(GivenQ(model), weighted), dataset, world.target, 0.7)
    assert abs(estimate.stats["q_value"] - world.value) > 10 * estimate.standard_error
    assert abs(estimate.value - world.value) < 4 * estimate.standard_error
    assert estimate.standard_error < 0.05 * world.value


@pytest.mark.parametrize("weighted", [False, True])
def test_a_right_q_survives_wrong_weights(world, dataset, weighted):
    skewed = replace(dataset, log_prob=np.log(np.random.default_rng(1).uniform(0.25, 0.9, len(dataset))))
    right = TableFunction(world.action_values, world.target_table)
    estimate = run_it(DoublyRobust(GivenQ(right), weighted, clip=(-1.0, 1.0)), skewed, world.target, 0.7)
    assert abs(estimate.value - world.value) < 4 * estimate.standard_error
    mistaken = run_it(
        DoublyRobust(GivenQ(wrong(world)), weighted, clip=(-1.0, 1.0)), skewed, world.target, 0.7
    )
    assert abs(mistaken.value - world.value) > 5 * mistaken.standard_error


def no_mask(rewards, terminated, q, next_v, discount):
    return rewards + discount * next_v - q


def swapped(dataset, model):
    """V(s) in place of V(s')."""
    v, q = values_along(dataset, model)
    late = v.copy()
    late[dataset.rows + 1] = v[dataset.rows]
    return late, q


def test_a_dropped_mask_turns_it_red(world, dataset, monkeypatch):
    monkeypatch.setattr(doubly_robust, "td_errors", no_mask)
    right = TableFunction(world.action_values, world.target_table)
    estimate = run_it(DoublyRobust(GivenQ(right)), dataset, world.target, 0.7)
    assert abs(estimate.value - world.value) > 8 * estimate.standard_error


def test_swapped_observations_turn_it_red(monkeypatch):
    ring = chain()
    right = TableFunction(ring.action_values, ring.target_table)
    data = ring.dataset(50, 6, 0)
    monkeypatch.setattr(doubly_robust, "values_along", swapped)
    estimate = run_it(DoublyRobust(GivenQ(right)), data, ring.target, 0.9)
    assert abs(estimate.value - ring.value) > 0.02 * ring.value


def test_behaviour_in_place_of_target_turns_it_red(world, dataset):
    right = TableFunction(world.action_values, world.behaviour_table)
    estimate = run_it(DoublyRobust(GivenQ(right)), dataset, world.behaviour, 0.7)
    assert abs(estimate.value - world.value) > 8 * estimate.standard_error


def test_v_at_the_record_s_end_stands_for_the_rest():
    ring = chain()
    right = TableFunction(ring.action_values, ring.target_table)
    estimate = run_it(DoublyRobust(GivenQ(right)), ring.dataset(50, 6, 0), ring.target, 0.9)
    assert estimate.value == pytest.approx(ring.value, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("q", [FQE(steps=400), LSPE(RandomFeatures(dim=64))], ids=["fqe", "lspe"])
def test_learned_q_serves(world, q):
    data = world.dataset(600, 20, 0)
    estimate = run_it(DoublyRobust(q), data, world.target, 0.7)
    assert estimate.value == pytest.approx(world.value, rel=0.05)


def test_discount_zero(world):
    for model in (TableFunction(world.reward, world.target_table), wrong(world)):
        data = world.dataset(4000, 3, 0)
        estimate = run_it(DoublyRobust(GivenQ(model)), data, world.target, 0.0)
        assert abs(estimate.value - world.horizon_value(1, 0.0)) < 4 * estimate.standard_error


def test_intervals_cover_as_promised():
    world = bandit()
    model = TableFunction(world.reward + 0.5, world.target_table)

    class ByCorner:
        def value(self, observations):
            return model.policy_values[self._state(observations)]

        def q(self, observations, actions):
            return model.q_table[self._state(observations), actions.argmax(axis=1)]

        def _state(self, observations):
            return np.argmin(((observations["observation"][:, None] - world.codes) ** 2).sum(axis=2), axis=1)

    object.__setattr__(model, "policy_values", (model.policy * model.q_table).sum(axis=1))
    inside = 0
    for seed in range(200):
        estimate = run_it(DoublyRobust(GivenQ(ByCorner())), world.dataset(200, 1, seed), world.target, 0.0)
        inside += world.value in estimate.interval
    assert 0.89 <= inside / 200 <= 0.99


def test_degenerate_weights_are_reported():
    world = random_tabular(discount=0.99)
    right = TableFunction(world.action_values, world.target_table)
    estimate = run_it(DoublyRobust(GivenQ(right)), world.dataset(30, 100, 0), world.target, 0.99)
    assert estimate.stats["effective_sample_size"] < 5
    assert estimate.verdict == "distrust" and estimate.status is Status.DEGENERATE


def test_what_it_cannot_do_is_refused_in_one_line(world, dataset):
    right = TableFunction(world.action_values, world.target_table)
    with pytest.raises(BadInput, match="horizon"):
        run_it(DoublyRobust(GivenQ(right)), dataset, world.target, 0.7, horizon=5)
    with pytest.raises(BadInput, match="start states"):
        run_it(
            DoublyRobust(GivenQ(right)),
            dataset,
            world.target,
            0.7,
            Starts(dataset.start_observations(), None),
        )
    with pytest.raises(BadInput, match="no Q"):
        run_it(DoublyRobust(GivenQ(NoQ())), dataset, world.target, 0.7)
    linear = lqr()
    with pytest.raises(BadInput, match="bandwidth"):
        run_it(DoublyRobust(), linear.dataset(5, 5, 0), linear.target, 0.9)


class NoQ:
    def value(self, observations):
        return np.zeros(len(observations["observation"]))
