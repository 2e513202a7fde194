"""An exported graph (ONNX, torch.export) as a policy: which observation goes where, in which layout, what
comes out.

Everything is decided from names and shapes that the file states; what they leave open is asked for, never
guessed.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bcrl.data.dataset import Array
from bcrl.errors import BadInput
from bcrl.policies.files import PolicyFile
from bcrl.policies.kinds import Deterministic, Discrete, channels_first, scored
from bcrl.policies.normaliser import Normaliser
from bcrl.policies.policy import Layout, Options, Output, Reads

CARRIED = re.compile(
    r"(h|c|hx|cx|h_?(0|n|in|t)|c_?(0|n|in|t)|hidden|hiddens|hidden_?states?|cell_?states?|state_?(in|out)s?"
    r"|(rnn|lstm|gru)\w*"
    r"|carry|mems?|memory|recurrent\w*|episode_starts?|initial_\w*|past_\w+|timesteps?)(_in)?"
)


@dataclass(frozen=True)
class Port:
    """One input or output: `shape` includes the batch, None where the
    file leaves the size open; None when unknown."""

    name: str
    shape: tuple[int | None, ...] | None
    dtype: np.dtype[Any]


@dataclass(frozen=True, eq=False)
class Ports:
    """A graph's inputs and the observations that feed them.

    Attributes:
        file: the file's name, for messages.
        inputs: in the graph's order.
        layout: of images as the graph wants them; None to see it from the shapes.
    """

    file: str
    inputs: tuple[Port, ...]
    layout: Layout | None = None

    def reads(self, given: Reads) -> Reads:
        """The observation keys of the inputs: as given, in the inputs' order, else the inputs' own names."""
        if len(self.inputs) == 1:
            if isinstance(given, tuple) and len(given) != 1:
                raise BadInput(f"{self.file} has one input; reads={given!r} names {len(given)} keys.")
            return given[0] if isinstance(given, tuple) else given
        carried = [port.name for port in self.inputs if CARRIED.fullmatch(port.name.lower())]
        if carried:
            raise BadInput(
                f"{self.file} carries a state from step to step (input {carried[0]!r}); stateful policies "
                "cannot be evaluated."
            )
        names = tuple(port.name for port in self.inputs)
        if given is None:
            return names
        if isinstance(given, str) or len(given) != len(names):
            raise BadInput(
                f"{self.file} has the inputs {list(names)}; reads={given!r} must name one key for each, in "
                "order."
            )
        return given

    def feed(self, observations: Any, reads: Reads) -> list[Array]:  # noqa: ANN401 - one array or a dict
        """The arrays for the inputs, in their order, layout and precision."""
        if isinstance(reads, tuple):
            return [self._fit(port, observations[key]) for port, key in zip(self.inputs, reads, strict=True)]
        if isinstance(observations, Mapping):
            raise BadInput(
                f"{self.file} has one input and the observations have the keys {sorted(observations)}; "
                "say which one it reads: reads='key'."
            )
        return [self._fit(self.inputs[0], observations)]

    def _fit(self, port: Port, array: Array) -> Array:
        wanted = None if port.shape is None else port.shape[1:]
        if wanted is not None and len(wanted) == 3 and array.ndim == 4:
            array = self._image(port, wanted, array)
        elif wanted is not None and not _match(wanted, array.shape[1:]):
            raise self._misfit(port, array)
        if not np.can_cast(array.dtype, port.dtype, "same_kind"):
            raise BadInput(
                f"{self.file} wants {port.dtype} for {port.name!r}; observations are {array.dtype}."
            )
        return np.require(array, port.dtype, ["C", "W"])

    def _image(self, port: Port, wanted: tuple[int | None, ...], array: Array) -> Array:
        moved = channels_first(array)
        fits = {
            "nhwc": _match(wanted, array.shape[1:]) and self.layout in (None, "nhwc"),
            "nchw": _match(wanted, moved.shape[1:]) and self.layout in (None, "nchw"),
        }
        if all(fits.values()):
            raise BadInput(
                f"{self.file} takes images of shape {_shown(wanted)}, which fits (height, width, channels) "
                "and (channels, height, width) alike; say layout='nhwc' or layout='nchw'."
            )
        if not any(fits.values()):
            raise self._misfit(port, array)
        return moved if fits["nchw"] else array

    def _misfit(self, port: Port, array: Array) -> BadInput:
        wanted = () if port.shape is None else port.shape[1:]
        return BadInput(
            f"{self.file} wants observations of shape {_shown(wanted)} for {port.name!r}; the data has "
            f"{array.shape[1:]}. Is this policy for another task?"
        )


@dataclass(frozen=True, eq=False)
class Graph:
    """One output of an exported graph as a function of the observations.

    Attributes:
        run: arrays for the inputs, in their order -> the output.
        ports: the inputs.
        reads: the observation keys that feed them.
        normaliser: observation statistics, applied first.
    """

    run: Callable[[list[Array]], Array]
    ports: Ports
    reads: Reads
    normaliser: Normaliser | None = None

    def __call__(self, observations: Any) -> Array:  # noqa: ANN401 - one array or a dict, as the data came
        if self.normaliser is not None:
            observations = self.normaliser(observations)
        arrays = self.ports.feed(observations, self.reads)
        return _numbered(_in_batches(self.run, arrays, _batch_size(self.ports.file, self.ports.inputs)))


def graph_policy(
    file: PolicyFile,
    options: Options,
    inputs: tuple[Port, ...],
    outputs: tuple[Port, ...],
    run: Callable[[int, list[Array]], Array],
) -> Deterministic | Discrete:
    """The policy that a graph is; `run(index, arrays)` gives the output of that number."""
    name = str(file.path)
    ports = Ports(name, inputs, options.layout)
    reads = ports.reads(options.reads)
    _batch_size(name, inputs)
    index = _choose_output(name, outputs, options.output_name)
    output = _meaning(name, outputs[index], options.output, options.num_actions)
    graph = Graph(partial(run, index), ports, reads, options.stats)
    return scored(output, graph, reads=reads, **options.source(file))


def _in_batches(run: Callable[[list[Array]], Array], arrays: Sequence[Array], size: int | None) -> Array:
    """Run a graph whose batch size is fixed (d3rlpy exports 1), the
    last batch filled up with its last row."""
    if size is None:
        return run(list(arrays))
    count, parts = len(arrays[0]), []
    for first in range(0, count, size):
        rows = np.minimum(np.arange(first, first + size), count - 1)
        parts.append(run([array[rows] for array in arrays]))
    return np.concatenate(parts)[:count]


def _batch_size(file: str, inputs: Sequence[Port]) -> int | None:
    """The one batch size that the inputs fix, None when they leave it open."""
    for port in inputs:
        if port.shape is not None and len(port.shape) < 2:
            raise BadInput(
                f"{file} has the input {port.name!r} of shape {_shown(port.shape)}, without a batch of "
                "observations; export it with a first dimension for the batch."
            )
    sizes = {port.shape[0] for port in inputs if port.shape is not None} - {None}
    if len(sizes) > 1:
        raise BadInput(f"{file} fixes several batch sizes {sorted(map(str, sizes))}; expected one.")
    return sizes.pop() if sizes else None


def _choose_output(file: str, outputs: Sequence[Port], name: str | None) -> int:
    """The index of the output that holds the actions."""
    names = [port.name for port in outputs]
    if name is not None:
        if name not in names:
            raise BadInput(f"{file} has no output {name!r}; it has {names}.")
        return names.index(name)
    if len(names) == 1:
        return 0
    actions = [i for i, one in enumerate(names) if one.lower() in ("action", "actions")]
    if len(actions) != 1:
        raise BadInput(f"{file} has the outputs {names}; say which one holds the actions: output_name='...'.")
    return actions[0]


def _meaning(file: str, port: Port, output: Output | None, num_actions: int | None) -> Output:
    """What an output means: as said, else actions; scores of discrete actions have to be said."""
    columns = None if port.shape is None or len(port.shape) < 2 else port.shape[-1]
    if (
        output in ("probabilities", "logits", "q_values")
        and None not in (num_actions, columns)
        and columns != num_actions
    ):
        raise BadInput(
            f"{file} scores {columns} actions; the data has {num_actions}. Is this policy for another task?"
        )
    if output is None and num_actions is not None and not np.issubdtype(port.dtype, np.integer):
        raise BadInput(
            f"{file} gives real numbers of shape {_shown(port.shape or ())} and the data has {num_actions} "
            "discrete actions; say what they are: output='logits', 'probabilities', 'q_values' (the largest "
            "is taken) or 'actions'."
        )
    return output if output is not None else "actions"


def _numbered(answer: Array) -> Array:
    """Whole-number actions of shape (n, 1), as ArgMax with kept dimensions gives them, as (n,)."""
    return (
        answer[:, 0]
        if np.issubdtype(answer.dtype, np.integer) and answer.ndim == 2 and answer.shape[1] == 1
        else answer
    )


def _match(wanted: tuple[int | None, ...], got: tuple[int, ...]) -> bool:
    return len(wanted) == len(got) and all(
        one in (None, other) for one, other in zip(wanted, got, strict=True)
    )


def _shown(shape: Sequence[int | None]) -> str:
    return "(" + ", ".join("any" if size is None else str(size) for size in shape) + ")"
