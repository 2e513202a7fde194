"""torch.export programs (.pt2). Their loader unpickles sample inputs, so they need trust."""

import io
import pickle
import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bcrl.data.dataset import Array
from bcrl.errors import BadInput
from bcrl.policies.files import PolicyFile
from bcrl.policies.kinds import Deterministic, Discrete, as_array, scored
from bcrl.policies.normaliser import Normaliser
from bcrl.policies.options import Options
from bcrl.policies.policy import Reads
from bcrl.policies.ports import Port, Ports, batch_size, choose_output, in_batches, meaning, numbered

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


@dataclass(frozen=True, eq=False)
class ExportedProgram:
    """One output of an exported program as a function of the observations."""

    module: torch.nn.Module
    ports: Ports
    reads: Reads
    index: int
    normaliser: Normaliser | None = None

    def __call__(self, observations: Any) -> Array:  # noqa: ANN401 - one array or a dict, as the data came
        if self.normaliser is not None:
            observations = self.normaliser(observations)
        arrays = self.ports.feed(observations, self.reads)
        return numbered(in_batches(self._run, arrays, batch_size(self.ports.file, self.ports.inputs)))

    def _run(self, arrays: list[Array]) -> Array:
        with torch.no_grad():
            answer = self.module(*(torch.as_tensor(array) for array in arrays))
        leaves = torch.utils._pytree.tree_leaves(answer)
        return as_array(leaves[self.index])


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
    ports = Ports(name, inputs, options.layout)
    reads = ports.reads(options.reads)
    batch_size(name, inputs)
    index = choose_output(name, outputs, options.output_name)
    model = ExportedProgram(module, ports, reads, index, options.stats)
    says = meaning(name, outputs[index], options.output, options.num_actions)
    return scored(says, model, reads=reads, **options.source(file))


def _refuse_random(name: str, program: Any) -> None:  # noqa: ANN401 - torch leaves ExportedProgram's graph untyped
    for node in program.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise BadInput(
                f"{name} draws random numbers inside ({node.target}), which no seed reaches; export the mean or the scores."
            )


def _ports(program: Any, names: Any) -> tuple[Port, ...]:  # noqa: ANN401
    found = {node.name: node.meta.get("val") for node in program.graph.nodes}
    ports = []
    for name in names:
        value = found.get(name)
        if not isinstance(value, torch.Tensor):
            raise BadInput(
                f"The exported program takes or gives {name!r}, which is no tensor; export a function of tensors."
            )
        shape = tuple(size if isinstance(size, int) else None for size in value.shape)
        ports.append(Port(name, shape, np.dtype(str(value.dtype).removeprefix("torch."))))
    return tuple(ports)
