"""Linear policy evaluation: arrays in, arrays out.

moments.py sums the data once; lspe.py turns the sums into weights; completeness.py and coverage.py say whether to believe
them; intervals.py how far off they may be; theory.py what the paper's theorems promise.
"""

from bcrl.linear.bootstrap import Bootstrap, block_of, bootstrap
from bcrl.linear.completeness import (
    BellmanResidual,
    EpsilonNu,
    Spectrum,
    bellman_residual,
    epsilon_nu,
    next_noise,
    next_pairs,
    spectrum,
)
from bcrl.linear.coverage import Coverage, kappa, leverage, occupancy_moment
from bcrl.linear.intervals import (
    HorizonInfluence,
    Sandwich,
    ValueInterval,
    cluster_scores,
    correct,
    horizon_influence,
    interval,
    sandwich,
    start_influence,
    start_variance,
)
from bcrl.linear.lspe import LSPESolution, lspe
from bcrl.linear.moments import Means, Moments
from bcrl.linear.theory import Bound, end_to_end_bound, lspe_bound, representation_bound
from bcrl.linear.whitening import Whitening, whiten

__all__ = [
    "BellmanResidual",
    "Bootstrap",
    "Bound",
    "Coverage",
    "EpsilonNu",
    "HorizonInfluence",
    "LSPESolution",
    "Means",
    "Moments",
    "Sandwich",
    "Spectrum",
    "ValueInterval",
    "Whitening",
    "bellman_residual",
    "block_of",
    "bootstrap",
    "cluster_scores",
    "correct",
    "end_to_end_bound",
    "epsilon_nu",
    "horizon_influence",
    "interval",
    "kappa",
    "leverage",
    "lspe",
    "lspe_bound",
    "next_noise",
    "next_pairs",
    "occupancy_moment",
    "representation_bound",
    "sandwich",
    "spectrum",
    "start_influence",
    "start_variance",
    "whiten",
]
