"""Networks: what an observation becomes (`Encoder`), and what it becomes with an action (`HeadNet`).

parts.py says what they look like in a recipe: `Pixels` and `Head`.
"""

from bcrl.networks.encoders import (
    Encoder,
    HeadNet,
    Standardise,
    encode_rows,
    encoder_for,
    follow,
    keys_read,
    linear,
    load_tensors,
    sees_pixels,
    tensors_of,
)
from bcrl.networks.parts import HEAD, PIXELS, STRIDES, Activation, FeatureNorm, Head, Pixels
from bcrl.networks.pixels import Convolutions, random_shift, shifted

__all__ = [
    "HEAD",
    "PIXELS",
    "STRIDES",
    "Activation",
    "Convolutions",
    "Encoder",
    "FeatureNorm",
    "Head",
    "HeadNet",
    "Pixels",
    "Standardise",
    "encode_rows",
    "encoder_for",
    "follow",
    "keys_read",
    "linear",
    "load_tensors",
    "random_shift",
    "sees_pixels",
    "shifted",
    "tensors_of",
]
