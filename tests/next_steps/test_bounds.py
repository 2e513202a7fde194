"""Bounds by the halted process, against exact values and against rollouts that stop at the same edge."""

from dataclasses import replace

import numpy as np
import pytest

from bcrl.errors import BadInput
from bcrl.estimators.lspe.method import LSPE
from bcrl.next_steps.bounds import bounds
from bcrl.question import Question
from bcrl.representations.fixed import GivenFeatures
from bcrl.training import Run
from bcrl_bench.worlds import random_tabular


def never_logged(world, states=(0, 3), action=1):
    """The world with an action that the log never shows in some states, and that the target likes."""
    behaviour, target = world.behaviour_table.copy(), world.target_table.copy()
    for state in states:
        behaviour[state, action] = 0.0
        target[state] = 0.1 / (target.shape[1] - 1)
        target[state, action] = 0.9
    behaviour /= behaviour.sum(axis=1, keepdims=True)
    return replace(world, behaviour_table=behaviour, target_table=target)


def supported(world):
    """What the log shows, by the rule that the log's own probabilities are read with."""
    return world.behaviour_table >= 1.0 / (5.0 * world.num_actions)


def endless(seed=0):
    """The features of `low_rank` would not be complete for a halted process: a table is."""
    world = random_tabular(seed)
    return replace(world, ends=np.zeros_like(world.ends))


def halted_value(world, rest):
    """Exact: the world stops, worth `rest`, where the target takes what was never logged."""
    inside = world.target_table * supported(world)
    goes_on = np.einsum("sa,sat->st", inside, world.transition * (1.0 - world.ends)[:, :, None])
    reward = (inside * world.reward).sum(axis=1) + (1.0 - inside.sum(axis=1)) * rest
    return float(world.first @ np.linalg.solve(np.eye(len(reward)) - world.discount * goes_on, reward))


def asked(world, **options):
    dataset = world.dataset(400, 30, seed=1)
    question = Question.of(dataset, {"new": world.target}, discount=world.discount)
    method = LSPE(GivenFeatures(world.features))
    return dataset, bounds(question, question.targets["new"], method, Run(), **options)


@pytest.mark.parametrize("make", [endless, random_tabular])
def test_the_ends_are_the_exact_values_of_the_halted_world(make):
    world = never_logged(make())
    dataset, found = asked(world, rewards=(-2.0, 3.0))
    steps = 1.0 / (1.0 - world.discount)
    exact = halted_value(world, -2.0 * steps), halted_value(world, 3.0 * steps)
    assert found.given
    assert found.can_end == dataset.terminated.any()
    assert found.worst == pytest.approx(exact[0], abs=0.06 * (exact[1] - exact[0]) + 0.3)
    assert found.best == pytest.approx(exact[1], abs=0.06 * (exact[1] - exact[0]) + 0.3)
    assert found.low <= found.worst <= world.value <= found.best <= found.high
    assert found.vacuous.low <= found.low
    assert found.high <= found.vacuous.high


def test_the_share_that_can_be_followed_is_that_of_rollouts_that_stop_there():
    world = never_logged(endless())
    _, found = asked(world)
    inside = (world.target_table * supported(world)).sum(axis=1)
    rng, lived, left_at = np.random.default_rng(0), 0.0, []
    state, alive = world.start(2_000, rng), np.ones(2_000, dtype=bool)
    for step in range(200):
        leaves = alive & (rng.random(2_000) >= inside[state])
        left_at += [step] * int(leaves.sum())
        alive &= ~leaves
        lived += world.discount**step * alive.mean()
        table = world.target_table * supported(world)
        table = table / np.maximum(table.sum(axis=1, keepdims=True), 1e-9)
        action = (rng.random((2_000, 1)) > np.cumsum(table[state], axis=1)[:, :-1]).sum(axis=1)
        state = world.step(state, action, rng)[1]
    assert found.within == pytest.approx(lived * (1.0 - world.discount), abs=0.08)
    assert found.half_outside is not None
    assert abs(found.half_outside - np.median(left_at)) <= 1 + 0.3 * np.median(left_at)


def test_where_all_is_supported_the_bounds_close():
    world = random_tabular()
    world = replace(world, target_table=world.behaviour_table)
    _, found = asked(world)
    assert found.within > 0.97
    assert found.best - found.worst < 0.1 * (found.vacuous.high - found.vacuous.low)
    assert found.low <= world.value <= found.high
    assert "as all logged ones do" in found.sentences[0]


def test_bounds_of_rewards_that_the_log_contradicts_are_refused():
    with pytest.raises(BadInput, match="does not hold what was logged"):
        asked(random_tabular(), rewards=(0.0, 0.5))
