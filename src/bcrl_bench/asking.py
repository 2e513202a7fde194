"""Ask a method straight away, without the doctor and the comparison of `evaluate`."""

from collections.abc import Mapping
from typing import Any

from bcrl.data.dataset import Dataset
from bcrl.estimate import Estimate
from bcrl.methods import Estimator
from bcrl.policies.policy import AnyPolicy
from bcrl.question import Question
from bcrl.training import Run


def ask(
    method: Estimator,
    dataset: Dataset,
    policies: Mapping[str, AnyPolicy],
    *,
    run: Run | None = None,
    **asked: Any,  # noqa: ANN401 - what `Question.of` takes
) -> dict[str, Estimate]:
    """The method's estimates by policy."""
    return method.estimate(Question.of(dataset, policies, **asked), Run() if run is None else run)


def ask_one(
    method: Estimator,
    dataset: Dataset,
    policy: AnyPolicy,
    discount: float,
    **asked: Any,  # noqa: ANN401 - what `Question.of` takes
) -> Estimate:
    """The method's estimate of one policy."""
    return ask(method, dataset, {"policy": policy}, discount=discount, **asked)["policy"]
