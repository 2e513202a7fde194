"""Stable-Baselines3 zips (model.save): the policy alone is rebuilt, without its algorithm, buffers or
environment.

The policy's class, spaces and arguments are pickled inside, so the file needs trust; whatever else it holds
pickled (schedules, the last observation) is never unpickled. Works for every algorithm whose policy class can
be imported, sb3-contrib's included.
"""

import io
import json
import pickle
import zipfile
from inspect import signature
from typing import Any

from bcrl.errors import BadInput
from bcrl.policies.files import PolicyFile
from bcrl.policies.policy import Options
from bcrl.policies.sb3_model import AnyKind, adapt

NEEDED = ("policy_class", "observation_space", "action_space", "policy_kwargs")
WANTED = (*NEEDED, "use_sde", "exploration_rate")
FAILURES = (
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    ImportError,
    AttributeError,
    EOFError,
    TypeError,
    ValueError,
    LookupError,
    RuntimeError,
)


def load_sb3(file: PolicyFile, options: Options) -> AnyKind:
    """The policy in an SB3 zip whose author is trusted."""
    try:
        from stable_baselines3.common import save_util
    except ImportError as error:
        raise BadInput("Stable-Baselines3 policies need it: pip install 'bcrl[sb3]'.") from error
    try:
        stored = json.loads(zipfile.ZipFile(io.BytesIO(file.content)).read("data"))
        untouched = {key: None for key in stored if key not in WANTED}
        data, weights, _ = save_util.load_from_zip_file(
            io.BytesIO(file.content), custom_objects=untouched, device="cpu"
        )
        policy = _rebuild(data, weights["policy"])
    except FAILURES as error:
        raise BadInput(
            f"{file.path} could not be rebuilt ({type(error).__name__}: {str(error)[:200]}); load it with "
            "its own class where it was made, and pass that model to load_policy."
        ) from error
    return adapt(policy, str(file.path), data.get("exploration_rate"), options, file)


def _rebuild(data: dict[str, Any], weights: dict[str, Any]) -> Any:  # noqa: ANN401 - SB3's BasePolicy
    import torch

    missing = [key for key in NEEDED if key not in data]
    if missing:
        raise KeyError(f"no usable {missing[0]} inside")
    build, arguments = data["policy_class"], dict(data["policy_kwargs"])
    arguments.pop("device", None)
    accepted = signature(build.__init__).parameters
    if "lr_schedule" in accepted:
        arguments["lr_schedule"] = lambda _: 0.0
    if "use_sde" in accepted and data.get("use_sde") is not None:
        arguments["use_sde"] = data["use_sde"]
    # the initial weights are drawn from the global generator and then overwritten
    with torch.random.fork_rng(devices=[]):
        policy = build(data["observation_space"], data["action_space"], **arguments)
    policy.load_state_dict(weights)
    policy.set_training_mode(False)
    return policy
