"""Consensus: quick linear views that correct each other."""

from bcrl.estimators.consensus.method import Consensus

__all__ = ["Consensus"]
