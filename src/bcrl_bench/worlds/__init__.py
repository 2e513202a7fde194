"""Worlds whose values are known exactly; every estimator is tested on them."""

from bcrl_bench.worlds.base import Episode, Linear, World, linear_inputs, transitions
from bcrl_bench.worlds.delay import DelayWorld
from bcrl_bench.worlds.lqr import LQRWorld, lqr, oscillators
from bcrl_bench.worlds.lqr_views import PixelLQRWorld, RichLQRWorld, pixel_lqr, rich_lqr
from bcrl_bench.worlds.tabular import TabularWorld, bandit, chain, counterexample, low_rank, random_tabular

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
    "oscillators",
    "pixel_lqr",
    "random_tabular",
    "rich_lqr",
    "transitions",
]
