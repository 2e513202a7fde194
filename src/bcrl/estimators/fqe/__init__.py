"""Fitted Q-evaluation.

method.py     recipe, presets, estimate            transitions.py  the log as batches
learner.py    one regression step                  value.py        V(s) and Q(s, a) afterwards
network.py    Q in the reward's unit               readout.py      the estimate: value, interval, audit
critics.py    several networks side by side        checks.py       reasons to believe it or not
flat.py       when the value has stopped moving
"""

from bcrl.estimators.fqe.flat import Flat
from bcrl.estimators.fqe.learner import TargetNetwork
from bcrl.estimators.fqe.method import FQE

__all__ = ["FQE", "Flat", "TargetNetwork"]
