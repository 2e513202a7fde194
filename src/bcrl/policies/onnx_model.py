"""ONNX files, run by onnxruntime on the CPU. d3rlpy exports them (with its scalers inside), and so does
torch.onnx.

The session is made from the bytes that were hashed, so weights kept in a second file are refused. Images go
in as the graph's input type without rescaling (0 to 255); a graph that wants 0 to 1 has to divide by itself,
as d3rlpy's does.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from bcrl.data.dataset import Array
from bcrl.errors import BadInput
from bcrl.policies.files import PolicyFile
from bcrl.policies.graph import Port, graph_policy
from bcrl.policies.kinds import Deterministic, Discrete
from bcrl.policies.patience import telling, too_slow
from bcrl.policies.policy import Options

DTYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(bool)": np.bool_,
}
RANDOM = (
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
)


def load_onnx(file: PolicyFile, options: Options) -> Deterministic | Discrete:
    """The policy in an ONNX file."""
    options.only("an ONNX file", "threads", "stats", "output", "output_name", "layout")
    session = _Session(file, options.threads)
    name = str(file.path)
    outputs = _ports(name, session.own.get_outputs())
    run = partial(_run, session, outputs, options.seconds)
    return graph_policy(file, options, _ports(name, session.own.get_inputs()), outputs, run)


class _Session:
    """onnxruntime's session, which cannot be sent to another process: there it is made again."""

    def __init__(self, file: PolicyFile, threads: int) -> None:
        self.file, self.threads, self.own = file, threads, _session(file, threads)

    def __reduce__(self) -> tuple[type["_Session"], tuple[PolicyFile, int]]:
        return _Session, (self.file, self.threads)


def _run(
    session: _Session,
    outputs: Sequence[Port],
    seconds: float,
    index: int,
    arrays: list[Array],
) -> Array:
    import onnxruntime

    feeds = dict(zip((node.name for node in session.own.get_inputs()), arrays, strict=True))
    how = onnxruntime.RunOptions()
    how.log_severity_level = 4
    with telling(partial(setattr, how, "terminate", True), seconds) as stopped:
        try:
            return np.asarray(session.own.run([outputs[index].name], feeds, how)[0])
        except Exception as error:  # onnxruntime's errors share no class of their own
            if stopped():
                raise too_slow(seconds) from error
            raise BadInput(f"The ONNX graph failed: {' '.join(str(error).split())[:300]}") from error


def _session(file: PolicyFile, threads: int) -> Any:  # noqa: ANN401 - onnxruntime has no types
    try:
        import onnxruntime
        from onnxruntime.capi import onnxruntime_pybind11_state as raised
    except ImportError as error:
        raise BadInput("ONNX policies need onnxruntime: pip install 'bcrl[onnx]'.") from error
    drawn = [op for op in RANDOM if b'"' + bytes([len(op)]) + op.encode() in file.content]
    if drawn:
        raise BadInput(
            f"{file.path} draws random numbers inside ({drawn[0]}), which no seed reaches; export the mean, "
            "or the scores of discrete actions, or wrap the network in a function that returns a torch "
            "distribution."
        )
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 4
    failures = (
        raised.InvalidProtobuf,
        raised.InvalidGraph,
        raised.InvalidArgument,
        raised.NoSuchFile,
        raised.NoModel,
        raised.NotImplemented,
        raised.Fail,
        raised.RuntimeException,
        UnicodeDecodeError,  # its message quotes a damaged name
    )
    try:
        return onnxruntime.InferenceSession(file.content, settings, providers=["CPUExecutionProvider"])
    except failures as error:
        hint = (
            "Export it as one file (external_data=False)."
            if "external" in str(error).lower()
            else "Is it damaged?"
        )
        raise BadInput(
            f"{file.path} is no ONNX graph that onnxruntime can run: {str(error)[:200]} {hint}"
        ) from error


def _ports(file: str, nodes: Sequence[Any]) -> tuple[Port, ...]:
    for node in nodes:
        if node.type not in DTYPES:
            raise BadInput(
                f"{file}: {node.name!r} is a {node.type}; bcrl feeds numbers ({', '.join(DTYPES)})."
            )
    return tuple(
        Port(
            node.name,
            tuple(size if isinstance(size, int) else None for size in node.shape),
            np.dtype(DTYPES[node.type]),
        )
        for node in nodes
    )
