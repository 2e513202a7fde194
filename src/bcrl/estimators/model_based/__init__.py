"""Model-based evaluation: learn how the world moves, then let the policy act in it."""

from bcrl.estimators.model_based.method import ModelBased
from bcrl.estimators.model_based.value import restore

__all__ = ["ModelBased", "restore"]
