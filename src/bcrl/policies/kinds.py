"""The three kinds of policy, around anything that answers observations, and a function of unknown kind.

`respond(observations)` gives actions, scores of actions or a torch distribution; the kind says what is done
with the answer. A policy that came from a file knows the file (`path`) and its contents (`digest`, sha256),
so that an estimate can say which policy it is about and keep a copy.

A function is called with the observations as the data holds them: numpy, or torch tensors for a torch module.
A plain function that cannot take numpy is offered tensors. What it returns is known only once it has
answered, so `FunctionPolicy.resolve` asks it about the first observations: asked twice, it must answer twice
the same.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bcrl.data.dataset import Array, Dataset
from bcrl.errors import BadInput
from bcrl.policies.distribution import draw, is_discrete, log_density, table
from bcrl.policies.patience import PATIENCE
from bcrl.policies.policy import AnyPolicy, Options, Output, Policy, Reads, view

Respond = Callable[[Any], Any]
Bounds = tuple[Array, Array]
MISTAKES = (TypeError, ValueError, RuntimeError, AttributeError, LookupError)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Sourced:
    """What every kind knows about where it came from.

    Attributes:
        respond: observations -> actions, scores or a distribution.
        reads: observation key or keys it looks at; None for all of them, as the data gives them.
        stack: frames of pixels that it was made for (collection reads it).
        path: the file it came from, if any.
        digest: sha256 of that file.
        loaded_with: what `load_policy` was told, apart from defaults; the same file with other options is
            another policy.
        stats_path: the file of observation statistics, if any.
        stats_digest: sha256 of that file.
        seconds: that one call may take.
        notes: what the doctor tells about it.
    """

    respond: Respond
    reads: Reads = None
    stack: int = 1
    path: Path | None = None
    digest: str | None = None
    loaded_with: Mapping[str, Any] = field(default_factory=dict)
    stats_path: Path | None = None
    stats_digest: str | None = None
    seconds: float = PATIENCE
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Deterministic(_Sourced):
    """One action per observation; the best-scored one when `respond` gives action values."""

    greedy: bool = False

    def act(self, observations: Any) -> Array:  # noqa: ANN401 - one array or a dict, as the data came
        answer = as_array(self.respond(observations))
        return np.asarray(_scores(answer).argmax(axis=1)) if self.greedy else answer


@dataclass(frozen=True, eq=False, kw_only=True)
class Stochastic(_Sourced):
    """Actions drawn from the torch distribution that `respond` gives, kept inside `bounds` by clipping."""

    bounds: Bounds | None = None

    def sample(self, observations: Any, generator: np.random.Generator) -> Array:  # noqa: ANN401
        actions = draw(self.respond(observations), generator)
        return actions if self.bounds is None else np.clip(actions, *self.bounds).astype(actions.dtype)

    def log_prob(self, observations: Any, actions: Array) -> NDArray[np.float64]:  # noqa: ANN401
        return log_density(self.respond(observations), actions, self.bounds)


@dataclass(frozen=True, eq=False, kw_only=True)
class Discrete(_Sourced):
    """The probability of every action: a Categorical, or scores that `output` names."""

    output: Literal["probabilities", "logits"] = "probabilities"

    def probabilities(self, observations: Any) -> NDArray[np.float64]:  # noqa: ANN401
        answer = self.respond(observations)
        if is_distribution(answer):
            return table(answer)
        scores = _scores(as_array(answer)).astype(np.float64)
        return np.asarray(special.softmax(scores, axis=1)) if self.output == "logits" else scores


def scored(output: Output, respond: Respond, **source: Any) -> Deterministic | Discrete:  # noqa: ANN401
    """The policy whose `respond` gives arrays that mean `output`."""
    if output == "probabilities" or output == "logits":
        return Discrete(respond=respond, output=output, **source)
    return Deterministic(respond=respond, greedy=output == "q_values", **source)


def as_array(answer: Any) -> Array:  # noqa: ANN401 - whatever the user's code returned
    """A policy's answer as numpy, from numpy, torch or a list."""
    if isinstance(answer, tuple | dict):
        raise BadInput(
            f"The policy returned a {type(answer).__name__} of {len(answer)}; expected one array of actions. "
            "Policies that carry a state from step to step cannot be evaluated; else return the actions "
            "alone, wrapped in a function."
        )
    return np.asarray(answer.detach().cpu().numpy() if hasattr(answer, "detach") else answer)


def _scores(answer: Array) -> Array:
    if answer.ndim != 2:
        raise BadInput(
            f"The policy returned shape {answer.shape}; scores of actions have shape (observations, "
            "num_actions)."
        )
    return answer


def is_distribution(answer: Any) -> bool:  # noqa: ANN401 - whatever the user's code returned
    """Whether an answer is a torch distribution; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(answer, torch.distributions.Distribution)


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

    @property
    def seconds(self) -> float:
        return self.call.options.seconds

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

    def bind(self, dataset: Dataset) -> AnyPolicy:
        """The policy on this log: of arrays where the function takes them, else of a table's rows."""
        rows = np.arange(min(2, dataset.num_observations))
        try:
            return self.resolve(view(dataset, self, dataset.observe(rows)))
        except BadInput:
            from bcrl.policies.tables import frame_function

            found = frame_function(self.call.function, dataset, self.call.options)
            if found is None:
                raise
            return found

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
    if isinstance(observations, Mapping) and len(observations) > 1:
        keys = ", ".join(map(str, observations))
        hints.append(
            f"It was given a dict of {keys}; reads={next(iter(observations))!r} gives it one of them."
        )
    if call.options.layout is None and any(array.ndim == 4 for array in arrays):
        hints.append("Images come as (n, height, width, channels); layout='nchw' moves the channels.")
    return BadInput(
        f"The policy failed on the dataset's observations: {type(error).__name__}: {str(error)[:300]}. "
        f"{' '.join(hints)}"
    )
