"""The three kinds of policy, around anything that answers observations: a function, a network, a session.

`respond(observations)` gives actions, scores of actions or a torch distribution; the kind says what is done
with the answer. A policy that came from a file knows the file (`path`) and its contents (`digest`, sha256),
so that an estimate can say which policy it is about and keep a copy.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bcrl.data.dataset import Array
from bcrl.errors import BadInput
from bcrl.policies.distribution import draw, is_distribution, log_density, table
from bcrl.policies.policy import Reads

Respond = Callable[[Any], Any]
Bounds = tuple[Array, Array]
Output = Literal["actions", "probabilities", "logits", "q_values"]


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
    """

    respond: Respond
    reads: Reads = None
    stack: int = 1
    path: Path | None = None
    digest: str | None = None
    loaded_with: Mapping[str, Any] = field(default_factory=dict)
    stats_path: Path | None = None
    stats_digest: str | None = None


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
