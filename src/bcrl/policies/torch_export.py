"""torch.export programs (.pt2). Their loader unpickles sample inputs, so they need trust."""

import io
import pickle
import zipfile
from functools import partial
from typing import Any

import numpy as np
import torch

from bcrl.data.dataset import Array
from bcrl.errors import BadInput
from bcrl.policies.files import PolicyFile
from bcrl.policies.graph import Port, graph_policy
from bcrl.policies.kinds import Deterministic, Discrete, as_array
from bcrl.policies.policy import Options

FAILURES = (
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


def load_exported(file: PolicyFile, options: Options) -> Deterministic | Discrete:
    """The policy in a torch.export file whose author is trusted."""
    options.only("a torch.export program", "stats", "output", "output_name", "layout")
    name = str(file.path)
    try:
        program = torch.export.load(io.BytesIO(file.content))
        module = program.module()
    except FAILURES as error:
        raise BadInput(
            f"{name} is no torch.export program that this torch can load: {str(error)[:200]}"
        ) from error
    _refuse_random(name, program)
    inputs = _ports(program, program.graph_signature.user_inputs)
    outputs = _ports(program, program.graph_signature.user_outputs)
    return graph_policy(file, options, inputs, outputs, partial(_run, module))


def _run(module: torch.nn.Module, index: int, arrays: list[Array]) -> Array:
    with torch.no_grad():
        answer = module(*(torch.as_tensor(array) for array in arrays))
    return as_array(torch.utils._pytree.tree_leaves(answer)[index])


def _refuse_random(name: str, program: Any) -> None:  # noqa: ANN401
    for node in program.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise BadInput(
                f"{name} draws random numbers inside ({node.target}), which no seed reaches; export the mean "
                "or the scores."
            )


def _ports(program: Any, names: Any) -> tuple[Port, ...]:  # noqa: ANN401
    found = {node.name: node.meta.get("val") for node in program.graph.nodes}
    ports = []
    for name in names:
        value = found.get(name)
        if not isinstance(value, torch.Tensor):
            raise BadInput(
                f"The exported program takes or gives {name!r}, which is no tensor; export a function of "
                "tensors."
            )
        shape = tuple(size if isinstance(size, int) else None for size in value.shape)
        ports.append(Port(name, shape, np.dtype(str(value.dtype).removeprefix("torch."))))
    return tuple(ports)
