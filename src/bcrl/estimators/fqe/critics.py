"""Several multilayer perceptrons of one shape, trained side by side.

Weights and biases of all members are views into one flat tensor, so that an optimiser, a target network or a
checkpoint touches one tensor. Small critics share one batched matrix product; large ones on a CPU are
multiplied one after the other by oneDNN, whose float32 products took half the time of torch's own (MKL) on
the AMD processor that we measured. A member's numbers do not depend on how many others there are. The
gradient is written out by hand, which in a prototype of 256 x 256 critics took 0.6 to 1.0 of the time of
automatic differentiation, depending on the machine's load.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from bcrl.training import generators

Init = Literal["torch", "dope"]
Reads = list[Tensor]  # what each layer read, of some members

# What torch's own compiler calls for a linear layer on a CPU; missing where torch is built without oneDNN.
_ONEDNN: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
# Multiply-adds, measured: below the first a call costs more than it saves; below the second (of a critic's
# largest product) so does multiplying members one by one.
_WORTH_A_CALL, _WORTH_SPLITTING = 2**20, 2**22


class Critics:
    """`members` networks of layers `widths` with ReLU between them.

    Args:
        members: number of networks.
        widths: inputs, hidden widths, outputs.
        device: where they live.
    """

    def __init__(self, members: int, widths: Sequence[int], device: torch.device | str = "cpu") -> None:
        self.members, self.widths = members, tuple(widths)
        sizes = [members * (inputs + 1) * outputs for inputs, outputs in pairwise(self.widths)]
        # A whole number of vector registers: what is left over is rounded otherwise by Adam, and which member
        # it belonged to would depend on how many there are.
        self.flat = torch.zeros(-(-sum(sizes) // 64) * 64, device=device)
        self.layers: list[tuple[Tensor, Tensor]] = []
        parts = torch.split(self.flat[: sum(sizes)], sizes)
        for part, (inputs, outputs) in zip(parts, pairwise(self.widths), strict=True):
            weight, bias = torch.split(part, [members * inputs * outputs, members * outputs])
            self.layers.append((weight.view(members, inputs, outputs), bias.view(members, 1, outputs)))

    def zeros_like(self) -> "Critics":
        """Networks of the same shape, all zero."""
        return Critics(self.members, self.widths, self.flat.device)

    def initialise(self, kind: Init, generator: torch.Generator) -> "Critics":
        """Uniform weights, those of a member the same however many others there are.

        The first member draws from the generator, each other one from a generator of its own.

        "torch": bound 1 / sqrt(inputs), biases too.
        "dope": bound sqrt(0.999 / inputs), in the last layer sqrt(0.03 / inputs), biases 0.
        """
        for member in range(self.members):
            source = generator if member == 0 else generators(generator.initial_seed() + member)[1]
            for number, (weight, bias) in enumerate(self.layers):
                inputs = weight.shape[1]
                last = number == len(self.layers) - 1
                dope = math.sqrt((0.03 if last else 0.999) / inputs)
                bound = 1.0 / math.sqrt(inputs) if kind == "torch" else dope
                weight[member] = _uniform(weight[member], bound, source)
                if kind == "torch":
                    bias[member] = _uniform(bias[member], bound, source)
        return self

    def forward(self, inputs: Tensor) -> tuple[Tensor, list[Reads]]:
        """Outputs (members, n, outputs) at inputs (n, inputs), and what each layer read, for `backward`."""
        outputs, reads = [], []
        for members in self._groups(len(inputs)):
            reading, read = inputs.expand(members.stop - members.start, *inputs.shape), []
            for number, (weight, bias) in enumerate(self.layers):
                read.append(reading)
                hidden = number < len(self.layers) - 1
                reading = _affine(reading, weight[members], bias[members], hidden)
            outputs.append(reading)
            reads.append(read)
        return (torch.cat(outputs) if len(outputs) > 1 else outputs[0]), reads

    def __call__(self, inputs: Tensor) -> Tensor:
        return self.forward(inputs)[0]

    def backward(self, reads: list[Reads], slopes: Tensor, into: "Critics", inputs: bool) -> Tensor | None:
        """Write the loss's gradient into the tensors of `into`.

        Args:
            reads: from `forward`.
            slopes: of the loss with respect to the outputs, shape (members, n, outputs).
            into: receives the gradient with respect to weights and biases.
            inputs: also return the gradient by the inputs, summed over members, shape (n, inputs).
        """
        by_input = []
        for members, read in zip(self._groups(slopes.shape[1]), reads, strict=True):
            gradient = slopes[members]
            for number in reversed(range(len(self.layers))):
                weight, bias = into.layers[number]
                _product(read[number].transpose(1, 2), gradient, out=weight[members])
                torch.sum(gradient, dim=1, keepdim=True, out=bias[members])
                if number or inputs:
                    gradient = _product(gradient, self.layers[number][0][members].transpose(1, 2))
                if number:
                    gradient = torch.ops.aten.threshold_backward(gradient, read[number], 0)
            by_input.append(gradient)
        return torch.cat(by_input).sum(dim=0) if inputs else None

    def _groups(self, rows: int) -> list[slice]:
        """Members that are multiplied together: all, or each on its own where oneDNN does it."""
        widest = max(inputs * outputs for inputs, outputs in pairwise(self.widths))
        if _ONEDNN is None or self.flat.device.type != "cpu" or rows * widest < _WORTH_SPLITTING:
            return [slice(0, self.members)]
        return [slice(member, member + 1) for member in range(self.members)]


def _affine(reading: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    """reading @ weight + bias by member, (members, n, outputs), then a ReLU."""
    if _by_onednn(reading, weight):
        made: Tensor = _ONEDNN(reading[0], weight[0].T, bias[0, 0], "relu" if relu else "none", [], "")
        return made[None]
    made = torch.baddbmm(bias, reading, weight)
    return made.relu_() if relu else made


def _product(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """left @ right by member."""
    if not _by_onednn(left, right):
        return torch.bmm(left, right, out=out)
    made: Tensor = _ONEDNN(left[0], right[0].T, None, "none", [], "")[None]
    return made if out is None else out.copy_(made)


def _by_onednn(left: Tensor, right: Tensor) -> bool:
    if _ONEDNN is None or len(left) > 1 or left.device.type != "cpu":
        return False
    return left.shape[1] * left.shape[2] * right.shape[2] >= _WORTH_A_CALL


def _uniform(like: Tensor, bound: float, generator: torch.Generator) -> Tensor:
    return (2.0 * torch.rand(like.shape, generator=generator) - 1.0) * bound
