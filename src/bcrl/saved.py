"""Estimates and representations kept on disk: JSON and safetensors, nothing that runs code.

`Estimate.save` writes estimates; representations are representations/stored.py's.

    folder/estimate.json          the estimate
    folder/value.json             what the value function is made of
    folder/value.safetensors      its numbers
    folder/policy.*               the policy's own file, where it came from one that cannot run code
    folder/SHA256SUMS             their hashes; a folder that does not match them is refused

A policy that came as a callable, and the function of `GivenFeatures`, are code and must be passed again on
loading.
"""

import dataclasses
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load

from bcrl.data.dataset import Array
from bcrl.data.storage.template import restore_template
from bcrl.errors import BadInput
from bcrl.estimate import Estimate
from bcrl.estimators.lspe.value import LinearValue, MeanValue
from bcrl.opening import plain_file, read_json
from bcrl.policies import load_policy
from bcrl.policies.policy import AnyPolicy, DiscretePolicy, Policy, StochasticPolicy, UnboundPolicy
from bcrl.representations.stored import restore_fitted, write_representation
from bcrl.sealed import check_folder

# Where `restore(spec, tensors, ...)` of each kind lives.
_VALUES = {
    "linear": "bcrl.estimators.lspe.value",
    "mean": "bcrl.estimators.lspe.value",
    "consensus": "bcrl.estimators.consensus.value",
    "fqe": "bcrl.estimators.fqe.value",
    "model": "bcrl.estimators.model_based",
}
# The policies that are saved along, and what may be said about them.
_POLICIES = ("policy.onnx", "policy.safetensors")
_HARMLESS = {
    "reads", "num_actions", "stochastic", "noise", "output", "output_name", "layout", "batched", "threads"
}  # fmt: skip


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
        raise BadInput(f"{estimate.method} learned no features. Pass method='bcrl' to evaluate.")
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
    if not os.path.lexists(folder / "estimate.json"):
        raise BadInput(f"{str(folder)!r} holds no estimate.json. Expected a folder that estimate.save wrote.")
    own = ("estimate.json", "value.json", "value.safetensors", *_POLICIES)
    check_folder(folder, own, always=False)
    estimate = Estimate.from_json(plain_file(folder / "estimate.json", folder).read_text(encoding="utf-8"))
    if not os.path.lexists(folder / "value.json"):
        return estimate
    spec = read_json(folder / "value.json", "a value function that estimate.save wrote", folder)
    try:
        chosen = _policy(folder, spec["policy"], policy)
        tensors = load(plain_file(folder / "value.safetensors", folder).read_bytes())
        template = restore_template(spec["template"])
        function = restore_value(spec, tensors, policy=chosen, template=template, features=features)
    except (SafetensorError, KeyError, TypeError) as error:
        raise BadInput(f"{str(folder)!r} is damaged: {error}. Save the estimate again.") from error
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
        return _whole(load_policy(given))
    if kept is None:
        raise BadInput(
            f"The policy of {str(folder)!r} was code and could not be saved; "
            "pass it again: load_estimate(..., policy=policy)."
        )
    # A folder comes from anyone: it may not name files elsewhere, nor vouch for files that run code.
    if kept["file"] not in _POLICIES or not set(kept["options"]) <= _HARMLESS:
        raise BadInput(f"{str(folder)!r} names a policy that estimate.save does not write; pass policy=.")
    return _whole(load_policy(plain_file(folder / kept["file"], folder), **kept["options"]))


def _whole(policy: AnyPolicy | UnboundPolicy) -> AnyPolicy:
    """The policy, where it needs no log to be one."""
    if not isinstance(policy, Policy | StochasticPolicy | DiscretePolicy):
        raise BadInput(
            "This policy reads a table's columns, which a saved estimate does not keep. Pass a function of "
            "the array of observations."
        )
    return policy
