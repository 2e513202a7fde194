"""Several multilayer perceptrons of one shape, trained side by side.

Weights and biases of all members are views into one flat tensor, so that an optimiser, a target network or a
checkpoint touches one tensor, and one batched matrix product serves all members. The gradient is written out
by hand, which in a prototype of 256 x 256 critics took 0.6 to 1.0 of the time of automatic differentiation,
depending on the machine's load.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

Init = Literal["torch", "dope"]


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
        self.flat = torch.zeros(sum(sizes), device=device)
        self.layers: list[tuple[Tensor, Tensor]] = []
        for part, (inputs, outputs) in zip(torch.split(self.flat, sizes), pairwise(self.widths), strict=True):
            weight, bias = torch.split(part, [members * inputs * outputs, members * outputs])
            self.layers.append((weight.view(members, inputs, outputs), bias.view(members, 1, outputs)))

    def zeros_like(self) -> "Critics":
        """Networks of the same shape, all zero."""
        return Critics(self.members, self.widths, self.flat.device)

    def initialise(self, kind: Init, generator: torch.Generator) -> "Critics":
        """Uniform weights.

        "torch": bound 1 / sqrt(inputs), biases too.
        "dope": bound sqrt(0.999 / inputs), in the last layer sqrt(0.03 / inputs), biases 0.
        """
        for number, (weight, bias) in enumerate(self.layers):
            inputs = weight.shape[1]
            last = number == len(self.layers) - 1
            bound = (
                1.0 / math.sqrt(inputs) if kind == "torch" else math.sqrt((0.03 if last else 0.999) / inputs)
            )
            weight.copy_(_uniform(weight, bound, generator))
            if kind == "torch":
                bias.copy_(_uniform(bias, bound, generator))
        return self

    def forward(self, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Outputs (members, n, outputs) at inputs (n, inputs), and what each layer read, for `backward`."""
        reading = inputs.expand(self.members, *inputs.shape)
        read = []
        for number, (weight, bias) in enumerate(self.layers):
            if number:
                reading = reading.relu_()
            read.append(reading)
            reading = torch.baddbmm(bias, reading, weight)
        return reading, read

    def __call__(self, inputs: Tensor) -> Tensor:
        return self.forward(inputs)[0]

    def backward(self, read: list[Tensor], gradient: Tensor, into: "Critics", inputs: bool) -> Tensor | None:
        """Write the loss's gradient into the tensors of `into`.

        Args:
            read: from `forward`.
            gradient: of the loss with respect to the outputs, shape (members, n, outputs).
            into: receives the gradient with respect to weights and biases.
            inputs: also return the gradient by the inputs, summed over members, shape (n, inputs).
        """
        for number in reversed(range(len(self.layers))):
            weight, bias = into.layers[number]
            torch.bmm(read[number].transpose(1, 2), gradient, out=weight)
            torch.sum(gradient, dim=1, keepdim=True, out=bias)
            if number or inputs:
                gradient = torch.bmm(gradient, self.layers[number][0].transpose(1, 2))
            if number:
                # After a ReLU a unit is positive exactly where its slope is 1, and 0 elsewhere.
                gradient.mul_(read[number].sign())
        return gradient.sum(dim=0) if inputs else None


def _uniform(like: Tensor, bound: float, generator: torch.Generator) -> Tensor:
    return (2.0 * torch.rand(like.shape, generator=generator) - 1.0) * bound
