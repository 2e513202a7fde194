"""Linear policy evaluation: arrays in, arrays out.

moments.py sums the data once; lspe.py turns the sums into weights; completeness.py, epsilon.py and
coverage.py say whether to believe them; theory.py says what the paper's theorems promise, inherent.py what
FQE over a class of features can miss.
"""

from bcrl.linear.completeness import (
    BellmanResidual,
    Spectrum,
    bellman_residual,
    next_noise,
    next_pairs,
    spectrum,
)
from bcrl.linear.coverage import Coverage, kappa, occupancy_moment
from bcrl.linear.epsilon import EpsilonNu, epsilon_nu
from bcrl.linear.inherent import Candidate, InherentBellmanError, inherent_bellman_error
from bcrl.linear.lspe import LSPESolution, lspe
from bcrl.linear.moments import Moments, Whitening, leverage, td_errors, whiten
from bcrl.linear.theory import Bound, end_to_end_bound, lspe_bound, representation_bound

__all__ = [
    "BellmanResidual",
    "Bound",
    "Candidate",
    "Coverage",
    "EpsilonNu",
    "InherentBellmanError",
    "LSPESolution",
    "Moments",
    "Spectrum",
    "Whitening",
    "bellman_residual",
    "end_to_end_bound",
    "epsilon_nu",
    "inherent_bellman_error",
    "kappa",
    "leverage",
    "lspe",
    "lspe_bound",
    "next_noise",
    "next_pairs",
    "occupancy_moment",
    "representation_bound",
    "spectrum",
    "td_errors",
    "whiten",
]
