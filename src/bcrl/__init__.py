"""bcrl: what would this policy earn, how sure are we, and may we believe it?

Start with `evaluate` (bcrl/evaluation.py). Names are imported when first used, so `import bcrl` costs next to
nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bcrl.comparison import Comparison
    from bcrl.data.dataset import Dataset
    from bcrl.data.sources import load_dataset
    from bcrl.errors import BadInput
    from bcrl.estimate import Check, Estimate, Interval
    from bcrl.estimators.anchored.method import Anchored
    from bcrl.estimators.auto import Auto
    from bcrl.estimators.consensus import Consensus
    from bcrl.estimators.dice.method import BestDICE, FlowDICE
    from bcrl.estimators.fqe.method import FQE
    from bcrl.estimators.lspe.method import LSPE
    from bcrl.estimators.model_based import ModelBased
    from bcrl.estimators.weighting.doubly_robust import DoublyRobust
    from bcrl.estimators.weighting.importance import ImportanceSampling
    from bcrl.evaluation import compare, evaluate
    from bcrl.networks import Head, Pixels
    from bcrl.next_steps.guard import guard
    from bcrl.next_steps.improve import improve
    from bcrl.policies import load_policy
    from bcrl.report import write_report
    from bcrl.representations.bellman_complete import BellmanComplete
    from bcrl.representations.curl import CURL
    from bcrl.representations.fixed import GivenFeatures, RandomFeatures
    from bcrl.representations.spr import SPR
    from bcrl.representations.stored import SavedFeatures
    from bcrl.saved import load_estimate, save_representation

__version__ = "0.2.0"
REPRESENTATIONS = {
    "BellmanComplete": "bcrl.representations.bellman_complete",
    "CURL": "bcrl.representations.curl",
    "SPR": "bcrl.representations.spr",
    "RandomFeatures": "bcrl.representations.fixed",
    "GivenFeatures": "bcrl.representations.fixed",
    "SavedFeatures": "bcrl.representations.stored",
}
ESTIMATORS = {
    "Auto": "bcrl.estimators.auto",
    "LSPE": "bcrl.estimators.lspe.method",
    "Anchored": "bcrl.estimators.anchored.method",
    "Consensus": "bcrl.estimators.consensus",
    "FQE": "bcrl.estimators.fqe.method",
    "ImportanceSampling": "bcrl.estimators.weighting.importance",
    "DoublyRobust": "bcrl.estimators.weighting.doubly_robust",
    "BestDICE": "bcrl.estimators.dice.method",
    "FlowDICE": "bcrl.estimators.dice.method",
    "ModelBased": "bcrl.estimators.model_based",
}
_HOME = {
    "BadInput": "bcrl.errors",
    "Check": "bcrl.estimate",
    "Comparison": "bcrl.comparison",
    "Dataset": "bcrl.data.dataset",
    "Estimate": "bcrl.estimate",
    "Head": "bcrl.networks",
    "Interval": "bcrl.estimate",
    "Pixels": "bcrl.networks",
    "compare": "bcrl.evaluation",
    "evaluate": "bcrl.evaluation",
    "guard": "bcrl.next_steps.guard",
    "improve": "bcrl.next_steps.improve",
    "load_dataset": "bcrl.data.sources",
    "load_estimate": "bcrl.saved",
    "load_policy": "bcrl.policies",
    "save_representation": "bcrl.saved",
    "write_report": "bcrl.report",
    **REPRESENTATIONS,
    **ESTIMATORS,
}
__all__ = [  # noqa: RUF022 - the order in which a reader meets them
    "load_dataset",
    "Dataset",
    "load_policy",
    "evaluate",
    "compare",
    "guard",
    "improve",
    "write_report",
    "load_estimate",
    "save_representation",
    "Estimate",
    "Interval",
    "Check",
    "Comparison",
    "Auto",
    "LSPE",
    "Anchored",
    "Consensus",
    "FQE",
    "ImportanceSampling",
    "DoublyRobust",
    "FlowDICE",
    "BestDICE",
    "ModelBased",
    "BellmanComplete",
    "CURL",
    "SPR",
    "RandomFeatures",
    "GivenFeatures",
    "SavedFeatures",
    "Head",
    "Pixels",
    "BadInput",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    if name not in _HOME:
        raise AttributeError(f"module 'bcrl' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
