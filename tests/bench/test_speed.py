"""The bench measures what it says: the parts of an answer are those of the default's, and add up."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from bcrl.estimators.lspe.method import LSPE
from bcrl.networks import Head
from bcrl.representations.bellman_complete import BellmanComplete
from bcrl_bench.asking import ask_one
from bcrl_bench.proving.ground import prepare
from bcrl_bench.speed import answers, ten_percent
from bcrl_bench.speed.clock import core_seconds, matmul_rate

SMALL = BellmanComplete(steps=4, evaluations=1, dim=8, batch_size=128, head=Head(16, 2), steady=None)


def small(actions=0):
    return answers.make_dataset(actions, episodes=12, length=40)


def test_the_parts_make_the_answer_that_the_method_makes():
    dataset, policy = small(), answers.Linear(0)
    parts = answers.Parts(dataset, {"p": policy}, SMALL)
    for _ in range(4):
        parts.step()
    whole = ask_one(LSPE(SMALL, repeats=1), dataset, policy, discount=answers.DISCOUNT)
    assert float(parts.fit.answer(later=True).per_start.mean()) == whole.value
    other = answers.Parts(dataset, {"p": policy}, replace(SMALL, lr=1e-4))
    other.step()
    assert float(other.fit.answer(later=True).per_start.mean()) != whole.value


@pytest.mark.parametrize("actions", [0, 12, 40])
def test_every_part_runs_for_many_actions_and_policies(actions):
    dataset = small(actions)
    names = {f"p{k}": answers.Soft(actions) if actions else answers.Linear(k) for k in range(5)}
    parts = answers.Parts(dataset, names, SMALL)
    calls = {name: getattr(parts, name) for name in ("step", "watch", "passed", "closer", "budget")}
    assert all(seconds > 0.0 for seconds in core_seconds(calls, 1).values())


def test_parts_add_up_as_the_default_takes_them():
    names = ("step", "look", "pass", "closer", "budget")
    seconds = {f"{part} one": 1.0 for part in names} | {"step many": 2.0, "look many": 2.0, "pass many": 2.5}
    assert answers.answer(seconds, "one", 1) == 3 * (600 + 20 + 1) + 2
    # Each policy beyond the first adds half a second to the pass over the log, and two seconds of its own.
    assert answers.answer(seconds, "many", 16) == 3 * (1200 + 40 + 1 + 15 * 0.5) + 16 * 2


def test_multiply_adds_are_those_of_the_products():
    parts = answers.Parts(small(), {"p": answers.Linear(0)}, SMALL)
    inputs = 17 + 6
    # Forward, and backward for weights and (second layer) inputs, of (s, a) and (s', pi).
    expected = 2 * 128 * (2 * inputs * 16 + 3 * 16 * 7)
    assert answers._multiply_adds(parts) == expected
    assert matmul_rate(size=64, rounds=2) > 1e6
    assert torch.get_num_threads() == 1


def test_who_leaves_the_ten_percent_again_has_not_arrived():
    curve = [(1.0, 5.0), (2.0, 10.5), (3.0, 12.0), (4.0, 9.2), (5.0, 10.0)]
    assert ten_percent.arrival(curve, 10.0) == 4.0
    assert ten_percent.arrival(curve[:3], 10.0) == math.inf
    assert ten_percent.arrival([(1.0, math.nan)], 10.0) == math.inf
    assert ten_percent.arrival([(1.0, -9.5), (2.0, -10.5)], -10.0) == 1.0


@pytest.mark.parametrize("world", ten_percent.WORLDS)
def test_both_sides_have_the_same_log_and_the_same_policy(world, tmp_path):
    case = ten_percent.case_of(world)
    small = replace(case, episodes=6)
    prepared = prepare(small, tmp_path)
    data, arrays = prepared.dataset, ten_percent.arrays_of(prepared)
    assert case.episodes * len(data) / data.num_episodes >= 0.5 * ten_percent.FEWEST_ROWS
    assert len(arrays["observations"]) == len(arrays["rewards"]) == len(data)
    assert (arrays["terminated"] | arrays["truncated"]).sum() == data.num_episodes
    found = {row.tobytes(): does for row, does in zip(arrays["seen"], arrays["does"], strict=True)}
    starts = np.stack([found[row.tobytes()] for row in arrays["starts"]])
    asked = data.natural(data.observe(data.start_rows))
    own = prepared.policy.probabilities(asked) if data.num_actions else prepared.policy.act(asked)
    np.testing.assert_allclose(starts, own, rtol=1e-6)
