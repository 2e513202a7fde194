"""Parts of a recipe that many methods share: what looks at pixels, and what looks at z and the action."""

from dataclasses import dataclass
from typing import Annotated, Literal

from bcrl.estimate import short_call
from bcrl.options import NOT_EMPTY, Checked, Count, CountOrZero, Layers, Width

Activation = Literal["relu", "elu", "tanh", "silu", "gelu"]
FeatureNorm = Literal["none", "sphere", "ball"]
STRIDES = (2, 2, 1, 1)


@dataclass(frozen=True)
class Pixels(Checked):
    """The pixel encoder.

    Attributes:
        feature_dim: numbers per image.
        conv_layers: convolutions of the paper's strides 2, 1, 1, ... (the paper has 5); None takes `strides`.
        channels: of every convolution.
        strides: one per convolution; the default costs a quarter of the paper's encoder.
        shift: pixels by which images move at random in training; None: 0, in CURL and SPR DrQ's 4 of 84.
    """

    feature_dim: Width = 50
    conv_layers: Layers | None = None
    channels: Width = 32
    strides: Annotated[tuple[Count, ...], NOT_EMPTY] = STRIDES
    shift: CountOrZero | None = None

    __repr__ = short_call

    @property
    def all_strides(self) -> tuple[int, ...]:
        return self.strides if self.conv_layers is None else (2, *[1] * (self.conv_layers - 1))


@dataclass(frozen=True)
class Head(Checked):
    """The MLP on (z, action).

    Attributes:
        hidden: width.
        layers: linear layers.
        activation: between layers; None: "gelu" for BellmanComplete, "relu" for CURL and SPR.
        activate_last: also on the output, as the paper's "4-layer MLP all with ReLU" has it.
        layer_norm: normalise hidden layers: bounds features far from the data, costs accuracy elsewhere.
        norm: "sphere" scales each output to length 1, "ball" only those that are longer.
    """

    hidden: Width = 256
    layers: Layers = 3
    activation: Activation | None = None
    activate_last: bool = False
    layer_norm: bool = False
    norm: FeatureNorm = "none"

    __repr__ = short_call


# What a recipe has unless it says otherwise.
PIXELS, HEAD = Pixels(), Head()
