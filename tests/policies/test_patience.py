"""A policy that never answers is ended; one that looks at its neighbours is found; names and ids of any size
are taken (F46, F47).
"""

import signal
import threading
import time
import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import bcrl
from bcrl.cli import main
from bcrl.commands.compare import name_policies
from bcrl.doctor import examine
from bcrl.errors import BadInput
from bcrl.policies.policy import answering


def small_log(rows=60, actions=None, width=2):
    rng = np.random.default_rng(0)
    return bcrl.Dataset.from_arrays(
        observations=rng.normal(size=(rows, width)).astype(np.float32),
        actions=rng.normal(size=(rows, 1)).astype(np.float32) if actions is None else actions,
        rewards=rng.normal(size=rows),
        terminated=np.arange(rows) % 10 == 9,
    )


def loop_forever(path):
    """An ONNX graph that copies its input until it is told to stop."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go_in"], ["go_out"]), helper.make_node("Identity", ["x"], ["y"])],
        "body",
        [
            info("i", TensorProto.INT64, []),
            info("go_in", TensorProto.BOOL, []),
            info("x", TensorProto.FLOAT, ["n", 2]),
        ],
        [info("go_out", TensorProto.BOOL, []), info("y", TensorProto.FLOAT, ["n", 2])],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Loop", ["", "go", "obs"], ["seen"], body=body),
            helper.make_node("ReduceMean", ["seen"], ["action"], axes=[1], keepdims=1),
        ],
        "endless",
        [info("obs", TensorProto.FLOAT, ["n", 2])],
        [info("action", TensorProto.FLOAT, ["n", 1])],
        initializer=[helper.make_tensor("go", TensorProto.BOOL, [], [True])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def test_an_endless_onnx_loop_is_ended(tmp_path, capfd):
    loop_forever(tmp_path / "endless.onnx")
    log = small_log()
    named = {"observations": log.observations["observation"][log.rows], "actions": log.actions}
    end = np.arange(60) % 10 == 9
    np.savez(tmp_path / "log.npz", **named, rewards=log.rewards, terminated=end)
    began = time.monotonic()
    words = ["evaluate", str(tmp_path / "log.npz"), str(tmp_path / "endless.onnx")]
    assert main([*words, "--discount", "0.9", "--method", "random", "--policy-seconds", "0.5"]) == 2
    told = capfd.readouterr().err
    assert time.monotonic() - began < 20
    assert "not answered after 0.5 seconds" in told and told.count("\n") == 1


@pytest.mark.parametrize("swallows", [False, True])
def test_an_endless_function_is_ended(swallows):
    def endless(x):
        while True:
            try:
                time.sleep(0.01)
            except ValueError:
                if not swallows or len(calls) > 1:
                    raise
                calls.append(x)

    calls = []
    policy = bcrl.load_policy(endless, seconds=0.2)
    with pytest.raises(BadInput, match="not answered after"):
        bcrl.evaluate(small_log(), policy, discount=0.9, method="random")


def test_someone_elses_alarm_goes_on():
    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    left = signal.setitimer(signal.ITIMER_REAL, 600.0)[0]
    try:
        policy = bcrl.load_policy(lambda x: x, seconds=5.0)
        with answering(policy):
            pass
        assert 590 < signal.getitimer(signal.ITIMER_REAL)[0] <= 600
        signal.raise_signal(signal.SIGALRM)
        assert rung == [1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)
        signal.signal(signal.SIGALRM, before)


def test_other_threads_can_ask_too():
    answers, method = [], "LSPE(RandomFeatures(dim=8))"
    run = threading.Thread(
        target=lambda: answers.append(
            bcrl.evaluate(small_log(), lambda x: x[:, :1], discount=0.9, method=method).method
        )
    )
    run.start()
    run.join()
    assert answers == [method]


def test_no_time_at_all_is_refused():
    with pytest.raises(BadInput, match="seconds=0"):
        bcrl.load_policy(lambda x: x, seconds=0)


@pytest.mark.parametrize(
    "policy",
    [
        lambda x: (x - x.mean(0))[:, :1],
        lambda x: np.sort(x[:, :1], axis=0),
        lambda x: x[:, :1] / np.abs(x).max(),
    ],
)
def test_a_policy_that_looks_at_the_rest_of_the_batch_is_refused(policy):
    with pytest.raises(BadInput, match="depends on the others"):
        bcrl.evaluate(small_log(), policy, discount=0.9, method="random")


def test_a_discrete_policy_that_looks_at_the_rest_of_the_batch_is_refused():
    rng = np.random.default_rng(1)
    log = small_log(actions=rng.integers(0, 2, size=60))
    with pytest.raises(BadInput, match="depends on the others"):
        bcrl.evaluate(log, lambda x: np.arange(len(x)) % 2, discount=0.9, method="random")


def test_rounding_by_another_batch_is_no_dependence():
    findings = examine(small_log(), {"p": bcrl.load_policy(lambda x: x[:, :1] * (1 + 1e-6 * len(x)))})
    assert not [one for one in findings if one.severity == "error"]


@pytest.mark.parametrize("error", [OSError, AssertionError, ValueError])
def test_a_policy_that_fails_is_told_in_one_line(error):
    def policy(x):
        if len(x) == 5:
            raise error("no\nsuch thing")
        return x[:, :1]

    with pytest.raises(BadInput, match=f"{error.__name__}: no such thing"):
        bcrl.evaluate(small_log(), policy, discount=0.9, method="random")


def test_names_and_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run=3.onnx").write_bytes(b"")
    assert name_policies(["run=3.onnx"]) == {"run=3": "run=3.onnx"}
    assert name_policies(["new=3.onnx"]) == {"new": "3.onnx"}
    long = name_policies(["x" * 400 + ".onnx", "x" * 401 + ".onnx"])
    assert len(long) == 2 and all(len(name) <= 60 for name in long)
    assert list(name_policies(["a\x1b[31m\udcff.onnx"])) == ["a\\x1b[31m\\udcff"]


def test_action_ids_need_no_identity_matrix():
    ids = np.full(60, 2_999)
    ids[::3] = 7
    log = small_log(actions=ids)
    assert log.num_actions == 3_000 and log.action_matrix(ids[:2]).sum() == 2
    policy = bcrl.load_policy(lambda x: np.where(x[:, 0] > 0, 7, 2_999))
    method = "LSPE(RandomFeatures(dim=8, widths=(1.0,)))"
    assert bcrl.evaluate(log, policy, discount=0.5, method=method).method == method


@pytest.mark.parametrize("output", ["actions", "probabilities"])
def test_too_many_actions_are_refused_at_once(output):
    log = small_log(actions=np.full(60, 49_999))
    answer = {
        "actions": lambda x: np.full(len(x), 7),
        "probabilities": lambda x: np.full((len(x), 50_000), 2e-5),
    }
    began = time.monotonic()
    with pytest.raises(BadInput, match=r"50000 discrete actions at \d+ observations are too many"):
        bcrl.evaluate(log, bcrl.load_policy(answer[output], output=output), discount=0.9, method="random")
    assert time.monotonic() - began < 20


def test_ten_thousand_columns_need_no_square_of_them():
    log = small_log(rows=40, width=10_000)
    method = "LSPE(RandomFeatures(dim=8, widths=(1.0,)))"
    tracemalloc.start()
    try:
        bcrl.evaluate(log, lambda x: x[:, :1], discount=0.5, method=method)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10_000**2 * 8 / 2
