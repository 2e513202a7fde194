"""A bare function, a torch module, or an object that already acts like a policy.

A function is called with the observations as the data holds them: numpy, or torch tensors for a torch module.
A plain function that cannot take numpy is offered tensors. What it returns (actions, scores, a torch
distribution) is
known only once it has answered, so `resolve` asks it about the first observations: asked twice, it must
answer twice the same.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array
from bcrl.errors import BadInput
from bcrl.policies.kinds import (
    Deterministic,
    Discrete,
    Options,
    Respond,
    Stochastic,
    as_array,
    is_discrete,
    is_distribution,
    scored,
)
from bcrl.policies.policy import AnyPolicy, DiscretePolicy, Policy, Reads, StochasticPolicy

MISTAKES = (TypeError, ValueError, RuntimeError, AttributeError, LookupError)


@dataclass(frozen=True, eq=False)
class Call:
    """How a function is called: with torch tensors or numpy, all
    observations at once or one by one (`options.batched`)."""

    function: Callable[[Any], Any]
    options: Options
    tensors: bool = False

    def __call__(self, observations: Any) -> Any:  # noqa: ANN401
        if self.options.stats is not None:
            observations = self.options.stats(observations)
        if self.options.layout == "nchw":
            observations = each(channels_first, observations)
        if self.tensors:
            return self._with_tensors(observations)
        return self.function(observations) if self.options.batched else self._one_by_one(observations)

    def _with_tensors(self, observations: Any) -> Any:  # noqa: ANN401
        import torch

        owner = module_of(self.function)
        like = (
            next((p for p in owner.parameters() if p.is_floating_point()), None)
            if owner is not None
            else None
        )
        dtype, device = (torch.get_default_dtype(), "cpu") if like is None else (like.dtype, like.device)

        def convert(array: Array) -> Any:  # noqa: ANN401 - a tensor
            tensor = torch.as_tensor(
                np.require(array, requirements=["C", "W"])
            )  # torch warns of read-only memory
            return tensor.to(device, dtype) if tensor.is_floating_point() else tensor.to(device)

        with torch.no_grad(), _evaluating(owner):
            seen = each(convert, observations)
            return self.function(seen) if self.options.batched else self._one_by_one(seen)

    def _one_by_one(self, observations: Any) -> Array:  # noqa: ANN401
        count = (
            len(next(iter(observations.values()))) if isinstance(observations, Mapping) else len(observations)
        )
        answers = [self.function(each(itemgetter(i), observations)) for i in range(count)]
        if any(is_distribution(answer) for answer in answers):
            raise BadInput(
                "A policy that returns a distribution takes all observations at once; leave batched=False "
                "out."
            )
        return np.stack([as_array(answer) for answer in answers])


@dataclass(frozen=True, eq=False)
class FunctionPolicy:
    """A function whose kind is not known yet; `resolve` asks it and gives the policy of that kind."""

    call: Call

    @property
    def reads(self) -> Reads:
        return self.call.options.reads

    def resolve(self, observations: Any) -> AnyPolicy:  # noqa: ANN401
        """The deterministic, stochastic or discrete policy that this function is."""
        few = each(lambda array: array[:2], observations)
        respond, answer = self._ask(few)
        options = self.call.options
        source = {"reads": self.reads, **options.source()}
        if is_distribution(answer):
            if options.output is not None:
                raise BadInput(
                    f"The policy returned a {type(answer).__name__}; leave output={options.output!r} out."
                )
            discrete = is_discrete(answer)
            return Discrete(respond=respond, **source) if discrete else Stochastic(respond=respond, **source)
        self._check(few, as_array(answer), as_array(respond(few)))
        return scored(options.output or "actions", respond, **source)

    def act(self, observations: Any) -> Array:  # noqa: ANN401
        """Actions, when the function turns out to give actions."""
        policy = self.resolve(observations)
        if not isinstance(policy, Policy):
            raise BadInput("This policy is random: resolve it first, then call sample or probabilities.")
        return policy.act(observations)

    def _ask(self, few: Any) -> tuple[Respond, Any]:  # noqa: ANN401
        """The way of calling that works, numpy before tensors, and its answer."""
        try:
            return self.call, self.call(few)
        except BadInput:
            raise
        except MISTAKES as error:
            failure = _failed(self.call, few, error)
            if self.call.tensors:
                raise failure from error
            with_tensors = replace(self.call, tensors=True)
            try:
                return with_tensors, with_tensors(few)
            except MISTAKES:
                raise failure from error

    def _check(self, few: Any, first: Array, second: Array) -> None:  # noqa: ANN401
        count = len(next(iter(few.values()))) if isinstance(few, Mapping) else len(few)
        if first.ndim == 0 or len(first) != count:
            raise BadInput(
                f"The policy returned shape {first.shape} for {count} observations; expected one action "
                "each. If it takes one observation at a time, load it with batched=False."
            )
        if first.shape != second.shape or not np.array_equal(first, second):
            raise BadInput(
                "The policy answered the same observations twice with different actions: it is random or "
                "keeps a state. Return a torch distribution, or give it sample(observations, generator) and "
                "log_prob."
            )


def function_policy(function: Callable[[Any], Any], options: Options) -> FunctionPolicy:
    """A function, module or bound method of a module, whose kind the first observations will show."""
    options.only("a function", "stats", "output", "layout", "batched")
    return FunctionPolicy(Call(function, options, module_of(function) is not None))


def module_of(function: Any) -> Any:  # noqa: ANN401 - torch is imported only if it already is
    """The torch module that a function is, or is a method of; None for a plain function."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    owner = getattr(function, "__self__", function)
    return owner if isinstance(owner, torch.nn.Module) else None


def each(change: Callable[[Array], Any], observations: Any) -> Any:  # noqa: ANN401
    """Apply a change to one array, or to every array of a dict."""
    if isinstance(observations, Mapping):
        return {key: change(value) for key, value in observations.items()}
    return change(observations)


def channels_first(array: Array) -> Array:
    """Images (n, H, W, C) as (n, C, H, W); other arrays as they are."""
    return np.ascontiguousarray(np.moveaxis(array, -1, 1)) if array.ndim == 4 else array


@contextmanager
def _evaluating(owner: Any) -> Iterator[None]:  # noqa: ANN401 - a torch module or None
    """Dropout off and batch statistics frozen for the call, every part put back as it was."""
    training = [] if owner is None else [part for part in owner.modules() if part.training]
    try:
        if training:
            owner.eval()
        yield
    finally:
        for part in training:
            part.training = True


def _failed(call: Call, observations: Any, error: Exception) -> BadInput:  # noqa: ANN401
    arrays = observations.values() if isinstance(observations, Mapping) else [observations]
    hints = (
        ["If it takes one observation at a time, load it with batched=False."] if call.options.batched else []
    )
    if call.options.layout is None and any(array.ndim == 4 for array in arrays):
        hints.append("Images come as (n, height, width, channels); layout='nchw' moves the channels.")
    return BadInput(
        f"The policy failed on the dataset's observations: {type(error).__name__}: {str(error)[:300]}. "
        f"{' '.join(hints)}"
    )


METHODS = ("probabilities", "sample", "act")
STATEFUL = ("reset", "reset_state", "reset_states", "initial_state", "get_initial_state", "init_hidden")


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
