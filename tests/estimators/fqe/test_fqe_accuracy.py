"""FQE against exact values, and the classic bugs, each of which must be seen."""

import dataclasses

import numpy as np
import pytest
import torch
from fqe_runs import QUICK, ending_chain, estimate, on

import bcrl.question as question_module
from bcrl.estimate import Status
from bcrl.estimators.fqe import Flat, TargetNetwork
from bcrl.estimators.fqe.transitions import Transitions
from bcrl.networks import Pixels
from bcrl.policies.policy import TargetActions, target_actions
from bcrl_bench.worlds import bandit, chain, lqr, pixel_lqr, random_tabular

WORLDS = {
    "tabular": (random_tabular(), 2000, 20),
    "ring": (chain(), 100, 6),
    "chain with an end": (ending_chain(), 200, 6),
}


def error_of(answer, world):
    return abs(answer.value / world.value - 1.0)


@pytest.fixture(scope="module")
def answers():
    return {name: on(*setting) for name, setting in WORLDS.items()}


@pytest.mark.parametrize("name", WORLDS)
def test_within_five_percent(name, answers):
    answer = answers[name]
    assert error_of(answer, WORLDS[name][0]) < 0.05
    assert answer.status is Status.CONVERGED
    assert answer.verdict == "trust"
    assert answer.value == pytest.approx(answer.per_start.mean())


def test_one_step_worlds_and_discount_zero():
    world = bandit()
    assert error_of(on(world, 4000, 1), world) < 0.05


def test_values_of_single_states(answers):
    world, answer = WORLDS["tabular"][0], answers["tabular"]
    observations = world.codes.astype(np.float32)
    assert np.corrcoef(answer.value_at(observations), world.v(observations))[0, 1] > 0.97
    actions = np.eye(3, dtype=np.float32)[np.zeros(8, dtype=int)]
    q = answer.value_function.q({"": observations}, actions)
    assert np.abs(q - world.q(observations, np.zeros(8, dtype=int))).max() < 0.1 * abs(world.value)


@pytest.mark.parametrize(("horizon", "discount"), [(1, 0.9), (8, 0.9), (8, 1.0)])
def test_finite_horizons(horizon, discount):
    world, num, length = WORLDS["ring"]
    data = world.dataset(num, length, 0)
    answer = estimate(
        data, world.target, discount=discount, horizon=horizon, method=dataclasses.replace(QUICK, steps=6000)
    )
    assert answer.value == pytest.approx(world.horizon_value(horizon, discount), rel=0.05)
    assert answer.status is Status.HORIZON


def swapped(monkeypatch):
    original = Transitions.gather

    def gather(self, index, generator):
        batch = original(self, index, generator)
        return dataclasses.replace(batch, states=batch.next_states, next_states=batch.states)

    monkeypatch.setattr(Transitions, "gather", gather)


def unmasked(monkeypatch):
    original = Transitions.__init__

    def build(self, dataset, *rest):
        original(self, dataclasses.replace(dataset, terminated=np.zeros_like(dataset.terminated)), *rest)

    monkeypatch.setattr(Transitions, "__init__", build)


def stale_policy(monkeypatch):
    def earlier(dataset, policy, **settings):
        right = target_actions(dataset, policy, **settings)
        before = np.maximum(np.arange(len(right.weights)) - 1, dataset.first_row)
        return TargetActions(right.actions[before], right.weights[before])

    monkeypatch.setattr(question_module, "target_actions", earlier)


@pytest.mark.parametrize("mutation", [swapped, unmasked, stale_policy])
def test_classic_bugs_are_seen(mutation, monkeypatch):
    world, num, length = WORLDS["chain with an end" if mutation is unmasked else "tabular"]
    mutation(monkeypatch)
    assert error_of(on(world, num, length), world) > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("target_std", [0.0, 0.3])
def test_lqr_within_five_percent(target_std):
    world = lqr(target_std=target_std)
    method = dataclasses.replace(
        QUICK, hidden=(128, 128), lr=3e-4, steps=8000, flat=Flat(least_steps=5000, check_every=50)
    )
    assert error_of(on(world, 600, 25, method=method), world) < 0.05


@pytest.mark.slow
def test_pixels_within_fifteen_percent():
    world = pixel_lqr()
    method = dataclasses.replace(
        QUICK,
        hidden=(128, 128),
        pixels=Pixels(conv_layers=3, channels=16),
        batch_size=64,
        lr=5e-4,
        target_network=TargetNetwork(tau=0.01),
        steps=1800,
    )
    answer = on(world, 200, 20, method=method)
    assert error_of(answer, world) < 0.15
    truth = world.v({"state": answer_states(world)})
    assert np.corrcoef(answer.per_start, truth)[0, 1] > 0.9


def answer_states(world):
    data = world.dataset(200, 20, 0)
    return data.observations["state"][data.start_rows]


def test_torch_global_generator_is_left_alone():
    before = torch.get_rng_state()
    world, _, length = WORLDS["ring"]
    on(world, 20, length, method=dataclasses.replace(QUICK, steps=50))
    assert torch.equal(before, torch.get_rng_state())
