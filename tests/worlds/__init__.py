"""Worlds whose values are known exactly; every estimator is tested on them."""

from worlds.base import Episode, Linear, World, linear_inputs, transitions
from worlds.delay import DelayWorld
from worlds.lqr import LQRWorld, lqr
from worlds.lqr_views import PixelLQRWorld, RichLQRWorld, pixel_lqr, rich_lqr
from worlds.tabular import TabularWorld, bandit, chain, counterexample, low_rank, random_tabular

__all__ = [
    "DelayWorld",
    "Episode",
    "LQRWorld",
    "Linear",
    "PixelLQRWorld",
    "RichLQRWorld",
    "TabularWorld",
    "World",
    "bandit",
    "chain",
    "counterexample",
    "linear_inputs",
    "low_rank",
    "lqr",
    "pixel_lqr",
    "random_tabular",
    "rich_lqr",
    "transitions",
]
