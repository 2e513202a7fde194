"""Networks: what an observation becomes (`Encoder`), and what observation and action become together (`Head`)."""

from bcrl.networks.encoders import (
    STRIDES,
    Convolutions,
    Encoder,
    Standardise,
    encoder_for,
    keys_read,
    sees_pixels,
)
from bcrl.networks.images import random_shift, shifted
from bcrl.networks.layers import Activation, Head, linear, load_tensors, tensors_of

__all__ = [
    "STRIDES",
    "Activation",
    "Convolutions",
    "Encoder",
    "Head",
    "Standardise",
    "encoder_for",
    "keys_read",
    "linear",
    "load_tensors",
    "random_shift",
    "sees_pixels",
    "shifted",
    "tensors_of",
]
