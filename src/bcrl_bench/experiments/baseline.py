"""Methods of the grid: what the package has, the constant-mean baseline, and a form of few updates of any
method.

The constant mean says V(s) = mean logged reward / (1 - discount) everywhere, for every policy: what the log
earns, for ever. A method that does not beat it has learned nothing about the policy.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Dataset
from bcrl.estimate import Estimate, FloatArray
from bcrl.inference.intervals import Influence, interval
from bcrl.methods import parse_method
from bcrl.question import Question
from bcrl.training import Run
from bcrl_bench.experiments.profile import Profile

CONSTANT = "constant mean"
_ONCE: dict[str, int | None] = {"epochs": None, "evaluations": 1}


@dataclass(frozen=True)
class ConstantMean:
    """Mean logged reward, discounted over the horizon."""

    def estimate(self, question: Question, run: Run) -> dict[str, Estimate]:
        dataset, discount, horizon = question.dataset, question.discount, question.horizon
        steps = (1.0 - (0.0 if horizon is None else discount**horizon)) / (1.0 - discount)
        mean = float(dataset.rewards.mean())
        share = (dataset.rewards - mean) / len(dataset) * steps
        influence = np.bincount(dataset.units[dataset.episode_of], weights=share).astype(np.float64)
        error, around = None, None
        if len(influence) > 1:
            error, around = interval(mean * steps, Influence(influence), level=question.level)
        one = Estimate(
            value=mean * steps,
            method=repr(self),
            discount=discount,
            horizon=horizon,
            interval=around,
            standard_error=error,
            per_start=np.full(len(question.starts), mean * steps),
            influence=influence,
            value_function=Constant(mean * steps, dataset.template()),
        )
        return dict.fromkeys(question.targets, one)


@dataclass(frozen=True, eq=False)
class Constant:
    """V(s) = c."""

    constant: float
    template: Dataset

    def value(self, observations: Mapping[str, NDArray[Any]]) -> FloatArray:
        return np.full(len(next(iter(observations.values()))), self.constant)

    def standard_error(self, observations: Mapping[str, NDArray[Any]]) -> FloatArray | None:
        return None

    def tensors(self) -> dict[str, NDArray[Any]]:
        return {"constant": np.array(self.constant)}

    def spec(self) -> dict[str, Any]:
        return {"kind": "constant"}


def method_of(profile: Profile, name: str) -> Any:  # noqa: ANN401 - any estimator
    """The estimator that a profile's name stands for."""
    text = profile.methods[name]
    method = ConstantMean() if text == CONSTANT else parse_method(text)
    updates = 2 if profile.dry else profile.updates
    return method if updates is None else with_updates(method, updates)


def with_updates(method: Any, updates: int) -> Any:  # noqa: ANN401 - any dataclass of settings
    """The same method, sizes and batches, with so many updates wherever it counts updates."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(method):
        value = getattr(method, field.name)
        if dataclasses.is_dataclass(value):
            changes[field.name] = with_updates(value, updates)
        elif field.name in ("steps", "encoder_steps"):
            changes[field.name] = updates
        elif field.name in _ONCE:
            changes[field.name] = _ONCE[field.name]
    return dataclasses.replace(method, **changes)
