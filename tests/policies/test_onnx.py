"""ONNX graphs: the same actions as the network they were exported from, batches, layouts and meanings never
guessed.
"""

import warnings
from hashlib import sha256

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from policies.small_data import dataset

from bcrl.errors import BadInput
from bcrl.policies import load_policy
from bcrl.policies.kinds import Deterministic, Discrete
from bcrl.policies.policy import target_actions


def export(path, net, example, **options):
    """As d3rlpy does: through torch's tracing exporter, which says that it is deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(net.eval(), example, path, dynamo=False, **options)
    return path


def graph(path, nodes, inputs, outputs, constants=()):
    """A graph from parts: inputs and outputs as (name, type, shape)."""
    described = [[helper.make_tensor_value_info(*one) for one in group] for group in (inputs, outputs)]
    made = helper.make_graph(
        nodes, "g", *described, initializer=[numpy_helper.from_array(v, k) for k, v in constants]
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


@pytest.fixture
def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2), torch.nn.Tanh())


def test_exported_network_gives_its_actions(tmp_path, net):
    path = export(
        tmp_path / "p.onnx",
        net,
        torch.zeros(1, 3),
        input_names=["input_0"],
        dynamic_axes={"input_0": {0: "batch"}},
    )
    policy = load_policy(path)
    states = np.random.default_rng(0).normal(size=(50, 3))
    with torch.no_grad():
        expected = net(torch.as_tensor(states, dtype=torch.float32)).numpy()
    assert isinstance(policy, Deterministic) and policy.reads is None
    np.testing.assert_allclose(policy.act(states), expected, rtol=1e-5, atol=1e-6)
    assert policy.path == path and policy.digest == sha256(path.read_bytes()).hexdigest()
    np.testing.assert_array_equal(load_policy(path, threads=2).act(states), policy.act(states))


@pytest.mark.parametrize("size", [1, 4])
def test_fixed_batch_size(tmp_path, net, size):
    """d3rlpy exports a batch of one."""
    path = export(
        tmp_path / "p.onnx", net, torch.zeros(size, 3), input_names=["input_0"], output_names=["output_0"]
    )
    states = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
    with torch.no_grad():
        expected = net(torch.as_tensor(states)).numpy()
    np.testing.assert_allclose(load_policy(path).act(states), expected, rtol=1e-5, atol=1e-6)


def test_scaler_inside_the_graph_is_part_of_the_policy(tmp_path):
    """d3rlpy's FQE bypassed the policy's own scalers; the exported graph holds them, and nothing looks
    behind it.
    """
    constants = {
        "mean": np.array([10.0, -3.0, 1.0], np.float32),
        "std": np.array([2.0, 5.0, 0.1], np.float32),
    }
    nodes = [
        helper.make_node("Sub", ["input_0", "mean"], ["centred"]),
        helper.make_node("Div", ["centred", "std"], ["output_0"]),
    ]
    ends = [("input_0", TensorProto.FLOAT, [None, 3])], [("output_0", TensorProto.FLOAT, [None, 3])]
    policy = load_policy(graph(tmp_path / "p.onnx", nodes, *ends, constants.items()))
    states = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    np.testing.assert_allclose(policy.act(states), (states - constants["mean"]) / constants["std"], rtol=1e-6)


def image_net(path, shape, dtype=TensorProto.FLOAT):
    """The largest value along each entry of the first axis after the batch: shows which layout went in."""
    nodes = [
        helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["f"], ["y"], axes=[2, 3], keepdims=0),
    ]
    return graph(path, nodes, [("x", dtype, [None, *shape])], [("y", TensorProto.FLOAT, [None, None])])


IMAGES = np.random.default_rng(0).integers(256, size=(3, 6, 5, 2), dtype=np.uint8)


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.UINT8])
@pytest.mark.parametrize(
    ("shape", "options", "axes"),
    [
        ((2, 6, 5), {}, (1, 2)),
        ((6, 5, 2), {}, (2, 3)),
        ((2, None, None), {}, (1, 2)),
        ((None, None, None), {"layout": "nchw"}, (1, 2)),
        ((None, None, None), {"layout": "nhwc"}, (2, 3)),
    ],
)
def test_image_layout_comes_from_the_shapes(tmp_path, shape, options, axes, dtype):
    policy = load_policy(image_net(tmp_path / "p.onnx", shape, dtype), **options)
    np.testing.assert_array_equal(policy.act(IMAGES), IMAGES.max(axis=axes))


def test_ambiguous_or_wrong_images_are_refused(tmp_path):
    with pytest.raises(BadInput, match="say layout='nhwc' or layout='nchw'"):
        load_policy(image_net(tmp_path / "p.onnx", (None, None, None))).act(IMAGES)
    cube = np.zeros((2, 4, 4, 4), np.uint8)
    with pytest.raises(BadInput, match="say layout="):
        load_policy(image_net(tmp_path / "p.onnx", (4, 4, 4))).act(cube)
    with pytest.raises(BadInput, match="wants observations of shape \\(3, 6, 5\\)"):
        load_policy(image_net(tmp_path / "p.onnx", (3, 6, 5))).act(IMAGES)
    with pytest.raises(BadInput, match="wants observations"):
        load_policy(image_net(tmp_path / "p.onnx", (2, 6, 5)), layout="nhwc").act(IMAGES)
    with pytest.raises(BadInput, match="wants uint8"):
        load_policy(image_net(tmp_path / "p.onnx", (2, 6, 5), TensorProto.UINT8)).act(
            IMAGES.astype(np.float32)
        )


def two_inputs(path, names=("state", "goal"), outputs=("value", "actions")):
    nodes = [
        helper.make_node("Add", list(names), [outputs[1]]),
        helper.make_node("Sub", list(names), [outputs[0]]),
    ]
    ends = (
        [(name, TensorProto.FLOAT, [None, 2]) for name in names],
        [(name, TensorProto.FLOAT, [None, 2]) for name in outputs],
    )
    return graph(path, nodes, *ends)


def test_several_inputs_and_outputs(tmp_path):
    data = dataset(keys={"state": 2, "goal": 2, "extra": 1})
    state, goal = (data.observations[key].astype(np.float32) for key in ("state", "goal"))
    policy = load_policy(two_inputs(tmp_path / "p.onnx"))
    assert policy.reads == ("state", "goal")
    np.testing.assert_allclose(target_actions(data, policy).actions[:, 0], state + goal, rtol=1e-6)
    other = load_policy(tmp_path / "p.onnx", output_name="value", reads=["goal", "state"])
    np.testing.assert_allclose(target_actions(data, other).actions[:, 0], goal - state, rtol=1e-6)


@pytest.mark.parametrize(
    ("names", "outputs", "options", "message"),
    [
        (("obs", "h0"), ("a", "actions"), {}, "stateful policies cannot be evaluated"),
        (("obs", "hidden_state"), ("a", "actions"), {}, "stateful policies cannot be evaluated"),
        (("state", "goal"), ("a", "b"), {}, "output_name='...'"),
        (("state", "goal"), ("a", "b"), {"output_name": "c"}, "has no output 'c'"),
        (("state", "goal"), ("a", "actions"), {"reads": "state"}, "must name one key for each"),
        (("state", "goal"), ("a", "actions"), {"noise": 0.1}, "noise= does nothing"),
    ],
)
def test_several_inputs_refusals(tmp_path, names, outputs, options, message):
    with pytest.raises(BadInput, match=message) as caught:
        load_policy(two_inputs(tmp_path / "p.onnx", names, outputs), **options)
    assert "\n" not in str(caught.value)


def test_one_input_needs_one_key(tmp_path, net):
    path = export(tmp_path / "p.onnx", net, torch.zeros(1, 3))
    data = dataset(keys={"state": 3, "goal": 2})
    with pytest.raises(BadInput, match="reads='key'"):
        target_actions(data, load_policy(path))
    assert target_actions(data, load_policy(path, reads="state")).actions.shape == (14, 1, 2)
    with pytest.raises(BadInput, match="wants observations of shape \\(3\\)"):
        target_actions(data, load_policy(path, reads="goal"))


def scores(path):
    return graph(
        path,
        [helper.make_node("Identity", ["x"], ["y"])],
        *[[(name, TensorProto.FLOAT, [None, 3])] for name in "xy"],
    )


def test_scores_of_discrete_actions_are_named_not_guessed(tmp_path):
    path, data = scores(tmp_path / "p.onnx"), dataset(num_actions=3)
    states = data.observations["observation"]
    with pytest.raises(BadInput, match="say what they are: output="):
        load_policy(path, num_actions=3)
    with pytest.raises(BadInput, match="output='logits'"):
        target_actions(data, load_policy(path))
    with pytest.raises(BadInput, match="scores 3 actions; the data has 4"):
        load_policy(path, num_actions=4, output="logits")
    policy = load_policy(path, num_actions=3, output="logits")
    assert isinstance(policy, Discrete)
    odds = np.exp(states.astype(np.float32).astype(np.float64))
    np.testing.assert_allclose(
        target_actions(data, policy).weights, odds / odds.sum(axis=1, keepdims=True), rtol=1e-6
    )
    greedy = load_policy(path, num_actions=3, output="q_values")
    np.testing.assert_array_equal(
        target_actions(data, greedy).actions[:, 0].argmax(axis=1), states.argmax(axis=1)
    )


@pytest.mark.parametrize("keepdims", [0, 1])
def test_whole_number_actions_need_no_name(tmp_path, keepdims):
    """d3rlpy's discrete exports: ArgMax inside, int64 out."""
    nodes = [helper.make_node("ArgMax", ["x"], ["y"], axis=1, keepdims=keepdims)]
    ends = [("x", TensorProto.FLOAT, [1, 3])], [("y", TensorProto.INT64, [1, 1] if keepdims else [1])]
    policy = load_policy(graph(tmp_path / "p.onnx", nodes, *ends), num_actions=3)
    data = dataset(num_actions=3)
    found = target_actions(data, policy).actions[:, 0].argmax(axis=1)
    np.testing.assert_array_equal(found, data.observations["observation"].argmax(axis=1))


def test_random_graphs_are_refused(tmp_path):
    nodes = [helper.make_node("RandomNormalLike", ["x"], ["n"]), helper.make_node("Add", ["x", "n"], ["y"])]
    path = graph(tmp_path / "p.onnx", nodes, *[[(name, TensorProto.FLOAT, [None, 3])] for name in "xy"])
    with pytest.raises(BadInput, match="draws random numbers inside \\(RandomNormalLike\\)"):
        load_policy(path)


def test_unbatched_and_damaged_graphs_are_refused(tmp_path):
    ends = [[(name, TensorProto.FLOAT, [3])] for name in "xy"]
    with pytest.raises(BadInput, match="without a batch"):
        load_policy(graph(tmp_path / "p.onnx", [helper.make_node("Identity", ["x"], ["y"])], *ends))
    whole = scores(tmp_path / "p.onnx").read_bytes()
    (tmp_path / "half.onnx").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "noise.onnx").write_bytes(np.random.default_rng(0).bytes(500))
    for name in ("half.onnx", "noise.onnx"):
        with pytest.raises(BadInput, match="no ONNX graph") as caught:
            load_policy(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_weights_in_a_second_file_are_refused(tmp_path):
    """The digest covers one file, and an estimate keeps a copy of one file."""
    constants = {"w": np.ones((3, 2), np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    path = graph(
        tmp_path / "p.onnx",
        nodes,
        [("x", TensorProto.FLOAT, [None, 3])],
        [("y", TensorProto.FLOAT, [None, 2])],
        constants.items(),
    )
    onnx.save_model(onnx.load(path), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    with pytest.raises(BadInput, match="as one file"):
        load_policy(path)


def test_normaliser_before_the_graph(tmp_path):
    from stable_baselines3.common.running_mean_std import RunningMeanStd
    from stable_baselines3.common.vec_env import VecNormalize

    stats = VecNormalize.__new__(VecNormalize)
    stats.__dict__.update(norm_obs=True, obs_rms=RunningMeanStd(shape=(3,)), epsilon=1e-8, clip_obs=10.0)
    stats.obs_rms.mean, stats.obs_rms.var = np.array([1.0, 2.0, 3.0]), np.array([4.0, 9.0, 16.0])
    policy = load_policy(scores(tmp_path / "p.onnx"), stats=stats)
    np.testing.assert_allclose(policy.act(np.array([[3.0, 5.0, 7.0]])), [[1.0, 1.0, 1.0]], rtol=1e-6)
    with pytest.raises(BadInput, match="statistics of one array have shape \\(3,\\)"):
        policy.act(np.zeros((2, 4)))
