"""Estimates and representations kept on disk: JSON and safetensors, nothing that runs code.

`Estimate.save` writes estimates; representations are representations/stored.py's.

    folder/estimate.json          the estimate
    folder/value.json             what the value function is made of
    folder/value.safetensors      its numbers
    folder/policy.*               the policy's own file, where it came from one that cannot run code

A policy that came as a callable, and the function of `GivenFeatures`, are code and must be passed again on
loading.
"""

import dataclasses
import json
from importlib import import_module
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load_file

from bcrl.data.dataset import Array
from bcrl.data.storage.template import restore_template
from bcrl.errors import BadInput
from bcrl.estimate import Estimate
from bcrl.estimators.lspe.value import LinearValue, MeanValue
from bcrl.policies import load_policy
from bcrl.policies.policy import AnyPolicy
from bcrl.representations.stored import restore_fitted, write_representation

# Where `restore(spec, tensors, ...)` of each kind lives.
_VALUES = {
    "linear": "bcrl.estimators.lspe.value",
    "mean": "bcrl.estimators.lspe.value",
    "fqe": "bcrl.estimators.fqe.value",
    "model": "bcrl.estimators.model_based",
}


def save_representation(estimate: Estimate, folder: str | Path) -> Path:
    """Write the features that an LSPE estimate learned, for `SavedFeatures` and tomorrow's policy.

    Args:
        estimate: as `evaluate` returned it, or `load_estimate` read it.
        folder: where to.
    """
    function = estimate.value_function
    if isinstance(function, MeanValue):
        raise BadInput("split='cross' learned features on each half; save those of LSPE(..., split='none').")
    if not isinstance(function, LinearValue):
        raise BadInput(f"{estimate.method} learned no features. Expected an estimate by LSPE.")
    write_representation(function.fitted, function.template, Path(folder))
    return Path(folder)


def load_estimate(
    folder: str | Path,
    *,
    policy: Any = None,  # noqa: ANN401 - whatever load_policy takes
    features: Any = None,  # noqa: ANN401 - the function of GivenFeatures
) -> Estimate:
    """The estimate that `estimate.save` wrote, with `value_at` as it was, to the bit.

    Args:
        folder: what was saved.
        policy: the policy, where it was not saved along (a callable, or a file that can run code).
        features: the function of `GivenFeatures`, where the estimate used it.
    """
    folder = Path(folder)
    if not (folder / "estimate.json").is_file():
        raise BadInput(f"{str(folder)!r} holds no estimate.json. Expected a folder that estimate.save wrote.")
    estimate = Estimate.from_json((folder / "estimate.json").read_text(encoding="utf-8"))
    if not (folder / "value.json").is_file():
        return estimate
    spec = json.loads((folder / "value.json").read_text(encoding="utf-8"))
    chosen = _policy(folder, spec["policy"], policy)
    try:
        tensors = load_file(folder / "value.safetensors")
    except SafetensorError as error:
        raise BadInput(
            f"{str(folder / 'value.safetensors')!r} is damaged: {error}. Save the estimate again."
        ) from error
    function = restore_value(
        spec, tensors, policy=chosen, template=restore_template(spec["template"]), features=features
    )
    return dataclasses.replace(estimate, value_function=function)


def restore_value(
    spec: dict[str, Any],
    tensors: dict[str, Array],
    **context: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401 - a ValueFunction
    """The value function of a spec, by its kind."""
    home = _VALUES.get(spec["kind"])
    if home is None:
        raise BadInput(
            f"Cannot restore a value function of kind {spec['kind']!r}. Was it saved by a newer bcrl?"
        )
    return import_module(home).restore(spec, tensors, restore_fitted=restore_fitted, **context)


def _policy(folder: Path, kept: dict[str, Any] | None, given: Any) -> AnyPolicy:  # noqa: ANN401
    if given is not None:
        return load_policy(given)
    if kept is None:
        raise BadInput(
            f"The policy of {str(folder)!r} was code and could not be saved; "
            "pass it again: load_estimate(..., policy=policy)."
        )
    return load_policy(folder / kept["file"], **kept["options"])
