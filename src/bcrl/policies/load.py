"""`load_policy`: from whatever a user has to one of the three kinds of
policy (deterministic, stochastic, discrete)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array
from bcrl.errors import BadInput
from bcrl.policies.files import PolicyFile, read_policy_file
from bcrl.policies.kinds import Deterministic, Discrete, function_policy, module_of
from bcrl.policies.normaliser import load_normaliser
from bcrl.policies.patience import PATIENCE
from bcrl.policies.policy import (
    AnyPolicy,
    DiscretePolicy,
    Layout,
    Options,
    Output,
    Policy,
    Reads,
    StochasticPolicy,
    UnboundPolicy,
)
from bcrl.policies.tables import EstimatorPolicy, LookupPolicy, lookup

METHODS = ("probabilities", "sample", "act")
STATEFUL = ("reset", "reset_state", "reset_states", "initial_state", "get_initial_state", "init_hidden")


def load_policy(
    source: Any,  # noqa: ANN401 - a path, a function, a module, a policy or a model
    *,
    trust: bool = False,
    reads: Reads = None,
    stats: Any = None,  # noqa: ANN401 - a path or a VecNormalize
    num_actions: int | None = None,
    stochastic: bool = False,
    noise: float = 0.0,
    output: Output | None = None,
    output_name: str | None = None,
    layout: Layout | None = None,
    batched: bool = True,
    threads: int = 1,
    seconds: float = PATIENCE,
) -> AnyPolicy | UnboundPolicy:
    """A policy from a file, a function of observations or of a table, a torch module, an SB3 model, a
    scikit-learn estimator or pipeline, a lookup table, or an object that already is one.

    Args:
        source: path to .safetensors (our actors), .onnx, .zip (Stable-Baselines3) or .pt2 (torch.export); or
            the thing itself. A lookup table is a dict {observation: action} or a DataFrame with a column
            `action`.
        trust: load files that can run code (.zip, .pt2, statistics). Only if you trust their author.
        reads: observation key, or keys, that the policy looks at (for tables: columns); None for what the
            file says, else everything.
        stats: VecNormalize statistics that the policy was trained with: the file (needs trust) or the object.
        num_actions: number of discrete actions in the data, to check the policy against; None when
            continuous.
        stochastic: evaluate the random policy in a file (SAC, PPO, ...) instead of its deterministic action;
            for a scikit-learn classifier draw by predict_proba instead of taking what it predicts.
        noise: standard deviation of Gaussian noise on a deterministic action, clipped to the action's bounds.
        output: what arrays mean: "actions", or scores of discrete actions: "probabilities", "logits",
            "q_values" (greedy).
        output_name: output of an exported graph that holds the actions, where there are several.
        layout: of images as the network wants them, "nhwc" or "nchw"; None to see it from the graph's shapes.
        batched: False for a function of one observation at a time.
        threads: of onnxruntime.
        seconds: that one call of the policy, about some thousand observations, may take; one that takes
            longer is an error.

    Returns:
        A policy with `reads` and one of act, sample and log_prob, or probabilities. A function's kind
        shows when it is first asked (`resolve`). A policy from a file has `path` and `digest` (sha256).
    """
    options = Options(
        reads=tuple(reads) if isinstance(reads, list) else reads,
        stats=None if stats is None else load_normaliser(stats, trust=trust),
        num_actions=num_actions,
        stochastic=stochastic,
        noise=noise,
        output=output,
        output_name=output_name,
        layout=layout,
        batched=batched,
        threads=threads,
        seconds=seconds,
    )
    if isinstance(source, str | Path):
        return policy_of_file(read_policy_file(Path(source), trust=trust), options)
    return _from_object(source, options)


def policy_of_file(file: PolicyFile, options: Options) -> AnyPolicy:
    """The policy in a file that was read."""
    if file.kind == "safetensors":
        from bcrl.policies.guarded import holds_guarded, load_guarded

        if holds_guarded(file.content):
            return load_guarded(file, options)
        from bcrl.policies.actor_file import load_actor

        return load_actor(file, options)
    if file.kind == "onnx":
        from bcrl.policies.onnx_model import load_onnx

        return load_onnx(file, options)
    if file.kind == "sb3":
        from bcrl.policies.sb3_zip import load_sb3

        return load_sb3(file, options)
    from bcrl.policies.torch_export import load_exported

    return load_exported(file, options)


def _from_object(source: Any, options: Options) -> AnyPolicy | UnboundPolicy:  # noqa: ANN401
    if isinstance(source, type):
        raise BadInput(f"{source.__name__} is a class; pass an object of it.")
    if is_sb3(source):
        from bcrl.policies.sb3_model import live_sb3

        return live_sb3(source, options)
    if isinstance(source, EstimatorPolicy | LookupPolicy):
        return source
    if isinstance(source, Mapping) or hasattr(source, "__arrow_c_stream__"):
        return lookup(source, options.only("a lookup table"))
    refuse_stateful(source)
    if isinstance(source, Policy | StochasticPolicy | DiscretePolicy):
        return given_policy(source, options)
    if module_of(source) is None and any(callable(getattr(source, name, None)) for name in METHODS):
        return given_policy(source, options)
    if callable(getattr(source, "predict", None)) and module_of(source) is None:
        options.only("a scikit-learn estimator", "stochastic", "output")
        return EstimatorPolicy(source, options)
    if callable(source):
        return function_policy(source, options)
    raise BadInput(
        f"{type(source).__name__} is no policy; expected a path, a function of observations, a torch module, "
        "a Stable-Baselines3 model, a scikit-learn estimator, a lookup table, or an object with act, sample "
        "or probabilities."
    )


@dataclass(frozen=True, eq=False)
class GivenStochastic:
    """An object's own sample and log_prob; without log_prob, importance
    weights are refused when they are asked for."""

    draw: Callable[[Any, np.random.Generator], Array]
    density: Callable[[Any, Array], Array] | None
    reads: Reads

    def sample(self, observations: Any, generator: np.random.Generator) -> Array:  # noqa: ANN401
        return self.draw(observations, generator)

    def log_prob(self, observations: Any, actions: Array) -> NDArray[np.float64]:  # noqa: ANN401
        if self.density is None:
            raise BadInput(
                "The policy has sample but no log_prob(observations, actions); importance weights need it."
            )
        return np.asarray(self.density(observations, actions), dtype=np.float64)


def given_policy(source: Any, options: Options) -> AnyPolicy:  # noqa: ANN401 - any object with one of METHODS
    """The object itself when it is a whole policy, else wrapped with what it reads."""
    options.only("an object that is already a policy")
    if options.reads is None and isinstance(source, Policy | StochasticPolicy | DiscretePolicy):
        return source
    reads = options.reads if options.reads is not None else getattr(source, "reads", None)
    if hasattr(source, "probabilities"):
        return Discrete(respond=source.probabilities, reads=reads)
    if hasattr(source, "sample"):
        return GivenStochastic(source.sample, getattr(source, "log_prob", None), reads)
    return Deterministic(respond=source.act, reads=reads)


def refuse_stateful(source: Any) -> None:  # noqa: ANN401
    """Refuse an object that shows by its methods that its actions depend on more than the observation."""
    found = [name for name in STATEFUL if hasattr(source, name)]
    if found:
        raise BadInput(
            f"{type(source).__name__} has {found[0]!r}, so it carries a state from step to step: it cannot "
            "be evaluated. If its action depends on the observation alone, pass a function that calls it."
        )


def is_sb3(source: Any) -> bool:  # noqa: ANN401 - anything at all
    """Whether an object is a live SB3 model; SB3 is not imported to find out."""
    parents = {(parent.__module__, parent.__name__) for parent in type(source).__mro__}
    return ("stable_baselines3.common.base_class", "BaseAlgorithm") in parents
