"""`evaluate` and `compare`: the question is checked, the work is shared, the logged policy stands beside."""

import dataclasses
import json
import signal
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

import bcrl
from bcrl.cli import main
from bcrl.data.storage.folder import save
from bcrl.errors import BadInput
from bcrl.estimate import Check, Estimate, Interval
from bcrl.inference.contrast import (
    agreement,
    difference_to,
    discounted_returns,
    episodes_to_halve,
    logged_value,
    probability_best,
)
from bcrl_bench.worlds import chain, lqr, random_tabular

RANDOM = bcrl.LSPE(bcrl.RandomFeatures(dim=100))


def test_evaluate_answers():
    world = random_tabular()
    estimate = bcrl.evaluate(world.dataset(500, 40, 0), world.target, discount=world.discount, method=RANDOM)
    assert estimate.value == pytest.approx(world.value, rel=0.1)
    assert estimate.provenance["versions"]["bcrl"] == bcrl.__version__
    assert estimate.timings["total"] > 0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"discount": 1.0}, "horizon"),
        ({"discount": -0.1}, "discount"),
        ({"discount": "0.9"}, "discount"),
        ({"horizon": 0}, "horizon"),
        ({"horizon": 2.5}, "horizon"),
        ({"method": "fqa"}, "Did you mean"),
        ({"starts": np.full((2, 3), np.nan)}, "starts"),
    ],
)
def test_a_bad_question_is_refused_in_one_line(changes, told):
    world = lqr()
    asked = {"discount": 0.9, "method": RANDOM} | changes
    with pytest.raises(BadInput, match=told) as refused:
        bcrl.evaluate(world.dataset(10, 5, 0), world.target, **asked)
    assert "\n" not in str(refused.value)


def test_bad_data_stops_before_any_work():
    world = lqr()
    dataset = world.dataset(10, 5, 0)
    rewards = dataset.rewards.copy()
    rewards[7] = np.nan

    class Untouchable:
        def estimate(self, *_, **__):
            raise AssertionError("the method was run on bad data")

    with pytest.raises(BadInput, match="reward"):
        bcrl.evaluate(
            dataclasses.replace(dataset, rewards=rewards), world.target, discount=0.9, method=Untouchable()
        )


def test_compare_shares_the_representation_and_pairs_the_difference():
    world = random_tabular()
    dataset = world.dataset(400, 40, 0)
    table = bcrl.compare(
        dataset, {"target": world.target, "same": world.target, "logging": world.behaviour},
        discount=world.discount,
        methods={"random": RANDOM},
    )  # fmt: skip
    target, same = (table.estimates[name]["random"] for name in ("target", "same"))
    assert target.value == same.value
    difference = table.differences["logging"]["random"]
    logging = table.estimates["logging"]["random"]
    # The logging policy against its own returns: the same data on both sides, so the paired interval is the
    # tighter one.
    assert difference.paired
    assert difference.interval.low < 0.05 * abs(table.logged.value)
    half = (difference.interval.high - difference.interval.low) / 2
    assert half < 1.96 * np.hypot(logging.standard_error, table.logged.standard_error)
    assert sum(table.probability_best["random"].values()) == pytest.approx(1.0)
    assert table.episodes_to_halve["target"]["random"] == pytest.approx(4 * 400, abs=2)


def test_logged_value_is_the_mean_discounted_return():
    world = chain()
    dataset = world.dataset(20, 12, 0)
    by_hand = [
        sum(0.9**t * r for t, r in enumerate(dataset.rewards[a:b]))
        for a, b in zip(dataset.offsets[:-1], dataset.offsets[1:], strict=True)
    ]
    np.testing.assert_allclose(discounted_returns(dataset, 0.9), by_hand)
    logged = logged_value(dataset, discount=0.9, horizon=None)
    assert logged.value == pytest.approx(np.mean(by_hand))
    short = logged_value(world.dataset(20, 3, 0), discount=0.9, horizon=None)
    assert short.checks[0].verdict == "caution"
    assert logged_value(world.dataset(20, 3, 0), discount=0.9, horizon=3).checks[0].verdict == "trust"


def fixed(value, influence, error=None):
    influence = np.asarray(influence, dtype=float)
    error = float(np.linalg.norm(influence)) if error is None else error
    return Estimate(
        value=value, method="fixed", discount=0.9, standard_error=error, influence=influence,
        interval=Interval(value - 2 * error, value + 2 * error),
        checks=(Check("c", 0.0, 1.0, "trust", "fine"),),
    )  # fmt: skip


def test_shared_luck_cancels_in_a_difference():
    luck = np.array([1.0, -1.0] * 20)
    paired = difference_to(fixed(11.0, luck), fixed(10.0, luck))
    assert paired.paired and paired.lower_bound == pytest.approx(1.0)
    apart = difference_to(fixed(11.0, luck), fixed(10.0, -luck))
    assert apart.lower_bound < 0 < apart.interval.high
    assert 0.5 < apart.probability_better < 0.9


def test_the_best_of_two_with_shared_luck_is_certain():
    luck = np.array([1.0, -1.0] * 20)
    assert probability_best({"a": fixed(11.0, luck), "b": fixed(10.0, luck)}, 0) == {"a": 1.0, "b": 0.0}
    apart = probability_best({"a": fixed(11.0, luck), "b": fixed(10.0, -luck)}, 0)
    assert 0.5 < apart["a"] < 0.6


def test_given_starts_do_not_shrink_with_more_episodes():
    estimate = fixed(1.0, [0.1] * 10)
    assert episodes_to_halve(estimate, 10) == 40
    stuck = dataclasses.replace(
        estimate, stats={"variance_of_given_starts": 0.5 * estimate.standard_error**2}
    )
    assert episodes_to_halve(stuck, 10) is None


def test_methods_that_disagree_are_told():
    near, far = fixed(1.0, [0.1]), fixed(2.0, [0.1])
    assert [check.verdict for check in agreement({"a": near, "b": near})] == ["trust"]
    assert [check.verdict for check in agreement({"a": near, "b": far})] == ["caution"]


def test_the_command_line_says_what_python_says(tmp_path, capsys):
    world = lqr()
    dataset = world.dataset(60, 20, 0)
    save(dataset, tmp_path / "logs")
    gain = np.asarray(world.target.act(np.eye(dataset.observations["observation"].shape[1])))
    write_linear_onnx(tmp_path / "policy.onnx", gain)
    method = "LSPE(RandomFeatures(dim=50))"
    words = [
        "evaluate",
        str(tmp_path / "logs"),
        str(tmp_path / "policy.onnx"),
        "--discount",
        "0.9",
        "--method",
        method,
    ]
    assert main([*words, "--json", "--quiet"]) == 0
    record = json.loads(capsys.readouterr().out)
    told = record["estimates"]["policy"][method]["value"]
    python = bcrl.evaluate(dataset, bcrl.load_policy(tmp_path / "policy.onnx"), discount=0.9, method=method)
    assert told == python.value
    assert main([*words, "--out", str(tmp_path / "results"), "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert "report.html" in printed and "logged" in printed
    assert (tmp_path / "results" / "report.html").stat().st_size > 10_000


def test_progress_tells_rate_and_time_left():
    world, news = lqr(), []
    bcrl.evaluate(world.dataset(60, 20, 0), world.target, discount=0.9, method=RANDOM, show=news.append)
    assert {line["stage"] for line in news} == {"choosing the width", "LSPE policy"}
    assert all(line["rate"] > 0 and line["left"] >= 0 for line in news)
    last = [line for line in news if line["stage"] == "LSPE policy"][-1]
    assert last["step"] == last["steps"] == 60 * 20


def test_an_interrupt_ends_in_one_line(tmp_path):
    world = lqr()
    save(world.dataset(60, 20, 0), tmp_path / "logs")
    write_linear_onnx(tmp_path / "policy.onnx", np.zeros((2, 1)))
    words = ["evaluate", str(tmp_path / "logs"), str(tmp_path / "policy.onnx"), "--discount", "0.9"]
    command = [sys.executable, "-m", "bcrl.cli", *words, "--method", "FQE(steps=10000000)"]
    # A shell that runs the tests in the background hands down an ignored SIGINT.
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, preexec_fn=heard, **pipes) as process:
        assert "left" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        told = process.stderr.read().splitlines()
    assert process.returncode == 130
    assert told[-1] == "bcrl evaluate: interrupted; run the same command again to go on."


def write_linear_onnx(path, gain):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.asarray(gain, dtype=np.float32), "gain")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["observation", "gain"], ["action"])],
        "linear",
        [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["n", gain.shape[0]])],
        [helper.make_tensor_value_info("action", TensorProto.FLOAT, ["n", gain.shape[1]])],
        [weight],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)


def test_saved_estimates_come_back_to_the_bit(tmp_path):
    world = lqr()
    dataset = world.dataset(60, 20, 0)
    gain = np.asarray(world.target.act(np.eye(dataset.observations["observation"].shape[1])))
    write_linear_onnx(tmp_path / "policy.onnx", gain)
    points = dataset.start_observations()["observation"]
    for number, method in enumerate([RANDOM, bcrl.LSPE(bcrl.RandomFeatures(dim=40), split="cross")]):
        estimate = bcrl.evaluate(
            dataset, bcrl.load_policy(tmp_path / "policy.onnx"), discount=0.9, method=method
        )
        again = bcrl.load_estimate(estimate.save(tmp_path / f"saved{number}"))
        for one, two in zip(
            estimate.value_at(points, interval=True), again.value_at(points, interval=True), strict=True
        ):
            np.testing.assert_array_equal(one, two)
        assert again.to_json() == estimate.to_json()


@pytest.mark.parametrize(
    "method",
    [
        "LSPE(BellmanComplete(steps=20, dim=16, head=Head(hidden=32)))",
        "LSPE(CURL(steps=20, dim=16, head=Head(hidden=32)))",
        "LSPE(SPR(steps=20, dim=16, head=Head(hidden=32)))",
        "FQE(steps=100, hidden=(32, 32))",
        "ModelBased(one_step=OneStep(steps=20))",
    ],
)
def test_learned_estimates_come_back_to_the_bit(method, tmp_path):
    world = lqr()
    dataset = world.dataset(60, 20, 0)
    gain = np.asarray(world.target.act(np.eye(dataset.observations["observation"].shape[1])))
    write_linear_onnx(tmp_path / "policy.onnx", gain)
    estimate = bcrl.evaluate(dataset, bcrl.load_policy(tmp_path / "policy.onnx"), discount=0.9, method=method)
    again = bcrl.load_estimate(estimate.save(tmp_path / "saved"))
    points = dataset.start_observations()["observation"][:10]
    np.testing.assert_array_equal(estimate.value_at(points), again.value_at(points))
    assert again.to_json() == estimate.to_json()


def test_code_is_not_saved_and_must_be_passed_again(tmp_path):
    world = lqr()
    dataset = world.dataset(30, 20, 0)
    estimate = bcrl.evaluate(
        dataset, world.target, discount=0.9, method=bcrl.LSPE(bcrl.GivenFeatures(world.features))
    )
    folder = estimate.save(tmp_path / "saved")
    with pytest.raises(BadInput, match="policy"):
        bcrl.load_estimate(folder)
    with pytest.raises(BadInput, match="features"):
        bcrl.load_estimate(folder, policy=world.target)
    again = bcrl.load_estimate(folder, policy=world.target, features=world.features)
    points = dataset.start_observations()["observation"]
    np.testing.assert_array_equal(again.value_at(points), estimate.value_at(points))
