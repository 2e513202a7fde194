"""Parts of `ModelBased`: settings of its two world models."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import nn

from bcrl.estimate import short_call
from bcrl.options import Checked, Count, Layers, NotNegative, Positive, Range, Share, Width


@dataclass(frozen=True)
class Dreamer(Checked):
    """The recurrent world model of Dreamer-v2.

    Attributes:
        deter, hidden, stoch, classes: sizes of h, of the layers between, and of z (rssm.py).
        cnn_depth: channels of the first convolution.
        head_layers, head_hidden: hidden layers of the heads and their width.
        image_noise, reward_noise: standard deviation that frames (0 to 1) and standardised rewards are
            modelled with.
        kl_scale, kl_balance, free_nats: of the KL term.
        steps: updates; None = 2000 on vectors, 1200 on pixels.
        batch_size, length: windows per update, observations per window.
        lr: AdamW's rate.
        cosine: let the rate fall to 0 by a half cosine.
    """

    deter: Width = 128
    hidden: Width = 128
    stoch: Width = 16
    classes: Width = 16
    cnn_depth: Width = 16
    head_layers: Layers = 2
    head_hidden: Width = 128
    image_noise: Positive = 0.3
    reward_noise: Positive = 0.3
    kl_scale: NotNegative = 1.0
    kl_balance: Share = 0.8
    free_nats: NotNegative = 1.0
    steps: Count | None = None
    batch_size: Count = 8
    length: Annotated[int, Range(2)] = 20
    lr: Positive = 1e-3
    cosine: bool = True

    __repr__ = short_call

    @property
    def rows_per_batch(self) -> int:
        return self.batch_size * self.length

    def optimiser(self, parameters: Iterator[nn.Parameter]) -> torch.optim.AdamW:
        # Dreamer-v2 shrinks weights by 1e-6 a step at any learning rate.
        return torch.optim.AdamW(parameters, self.lr, eps=1e-5, weight_decay=1e-6 / self.lr)

    def rate(self, done: int, steps: int) -> float:
        """The learning rate after so many of the updates."""
        return _half_cosine(self.lr, done, steps) if self.cosine else self.lr


@dataclass(frozen=True)
class OneStep(Checked):
    """The one-step model of vectors.

    Attributes:
        steps: updates, by a rate that falls to 0 by a half cosine.
        hidden, layers: width and number of linear layers of its network.
        lr: AdamW's first rate.
    """

    steps: Count = 1500
    hidden: Width = 128
    layers: Layers = 4
    lr: Positive = 2e-3

    __repr__ = short_call

    @property
    def rows_per_batch(self) -> int:
        return 256

    def optimiser(self, parameters: Iterator[nn.Parameter]) -> torch.optim.AdamW:
        return torch.optim.AdamW(parameters, self.lr, weight_decay=1e-4)

    def rate(self, done: int, steps: int) -> float:
        """The learning rate after so many of the updates."""
        return _half_cosine(self.lr, done, steps)


def _half_cosine(lr: float, done: int, steps: int) -> float:
    return 0.5 * lr * (1.0 + math.cos(math.pi * done / steps))
