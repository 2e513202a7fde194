"""The three kinds of policy, around anything that answers observations: a function, a network, a session.

`respond(observations)` gives actions, scores of actions or a torch distribution; the kind says what is done
with the answer. A policy that came from a file knows the file (`path`) and its contents (`digest`, sha256),
so that an estimate can say which policy it is about and keep a copy.

Torch distributions draw from the global generator only, so a draw forks it, seeds the fork from the generator
passed in and puts the global state back. A Gaussian that is clipped to bounds has no density on them: there
`log_density` gives the logarithm of the mass beyond the bound (the density with respect to length plus the
two end points), so ratios of two such policies are right. A squashed Gaussian's density is infinite or
undefined where float32 rounds tanh to 1: actions are moved inside by 1e-6 of the range, as Stable-Baselines3
does.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bcrl.data.dataset import Array
from bcrl.errors import BadInput
from bcrl.policies.files import PolicyFile
from bcrl.policies.normaliser import Normaliser
from bcrl.policies.policy import Reads

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributions import Distribution

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


HAIR = 1e-6


def is_distribution(answer: Any) -> bool:  # noqa: ANN401 - whatever the user's code returned
    """Whether an answer is a torch distribution; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(answer, torch.distributions.Distribution)


def is_discrete(answer: "Distribution") -> bool:
    """Whether a distribution is over one numbered action (Categorical, OneHotCategorical, Bernoulli)."""
    from torch import distributions as td

    single = len(answer.batch_shape) == 1 and len(answer.event_shape) == 0
    one_hot = isinstance(answer, td.OneHotCategorical) and len(answer.batch_shape) == 1
    if (isinstance(answer, td.Categorical | td.Bernoulli) and single) or one_hot:
        return True
    if getattr(answer.support, "is_discrete", False):
        raise BadInput(
            f"The policy returned {type(answer).__name__} with batch shape {tuple(answer.batch_shape)}; "
            "discrete actions need one Categorical per observation. Number joint actions from 0 to offer "
            "several choices at once."
        )
    return False


def table(answer: "Distribution") -> NDArray[np.float64]:
    """Probabilities of every action, shape (n, num_actions)."""
    from torch.distributions import Bernoulli

    probabilities = answer.probs.detach().cpu().double().numpy()  # type: ignore[attr-defined]
    if isinstance(answer, Bernoulli):
        probabilities = np.stack([1.0 - probabilities, probabilities], axis=1)
    return np.asarray(probabilities / probabilities.sum(axis=1, keepdims=True))


def draw(answer: "Distribution", generator: np.random.Generator) -> Array:
    """One action per observation, a function of the distribution and the generator's state alone."""
    import torch

    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        torch.manual_seed(int(generator.integers(2**63 - 1)))
        return np.asarray(answer.sample().cpu().numpy())


def log_density(
    answer: "Distribution", actions: Array, bounds: tuple[Array, Array] | None = None
) -> NDArray[np.float64]:
    """Log density of actions, shape (n,); -inf outside the support."""
    import torch

    value = torch.from_numpy(np.array(actions, dtype=np.float64))  # a copy: logged actions may be read-only
    with torch.no_grad():
        parts = _supported(answer, value) if bounds is None else _clipped(answer, value, bounds)
    return np.asarray(parts.reshape(len(value), -1).sum(dim=1).numpy(), dtype=np.float64)


def _supported(answer: "Distribution", value: "Tensor") -> "Tensor":
    """Log densities of an ordinary distribution, per action or per component."""
    import torch

    like = _parameter(answer)
    value = value.to(like.device, like.dtype)
    edges = _edges(answer)
    if edges is None:
        return answer.log_prob(value).double().cpu()
    low, high = (torch.as_tensor(edge, dtype=value.dtype, device=value.device) for edge in edges)
    margin = HAIR * (high - low)
    inside = torch.maximum(torch.minimum(value, high - margin), low + margin)
    parts = answer.log_prob(inside).double().cpu()
    outside = ((value < low - margin) | (value > high + margin)).cpu()
    if outside.ndim > parts.ndim:
        outside = outside.flatten(parts.ndim).any(dim=-1)
    return torch.where(outside, -torch.inf, parts)


def _clipped(answer: "Distribution", value: "Tensor", bounds: tuple[Array, Array]) -> "Tensor":
    """Log densities of a Gaussian clipped to bounds, per component:
    a density inside, a mass on the bounds."""
    import torch
    from torch.distributions import Independent, Normal

    normal = answer.base_dist if isinstance(answer, Independent) else answer
    assert isinstance(normal, Normal), "only Gaussians are clipped"
    mean, scale = normal.loc.double().cpu(), normal.scale.double().cpu()
    low, high = (torch.as_tensor(np.asarray(bound), dtype=torch.float64) for bound in bounds)
    parts = -0.5 * ((value - mean) / scale) ** 2 - torch.log(scale) - 0.5 * np.log(2.0 * np.pi)
    parts = torch.where(value == low, torch.special.log_ndtr((low - mean) / scale), parts)
    return torch.where(value == high, torch.special.log_ndtr((mean - high) / scale), parts)


def _parameter(answer: "Distribution") -> "Tensor":
    """Some parameter of a distribution: it tells the device and the precision."""
    import torch
    from torch.distributions import Distribution

    for value in vars(answer).values():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value
        if isinstance(value, Distribution):
            return _parameter(value)
    return torch.zeros(())


def _edges(answer: "Distribution") -> tuple[Any, Any] | None:
    """Ends of a bounded support, pushed through what follows a squashing transform; None when unbounded."""
    from torch import distributions as td

    if isinstance(answer, td.Independent):
        return _edges(answer.base_dist)
    if not isinstance(answer, td.TransformedDistribution):
        return _interval(answer.support)
    edges = _edges(answer.base_dist)
    for transform in _flat(answer.transforms):
        if edges is not None:
            first, last = (transform(_tensor(edge)) for edge in edges)
            edges = (first.minimum(last), first.maximum(last))
        else:
            edges = _interval(transform.codomain)
    return edges


def _flat(transforms: Any) -> list[Any]:  # noqa: ANN401 - torch leaves its transforms untyped
    parts = []
    for transform in transforms:
        if hasattr(transform, "base_transform"):
            parts += _flat([transform.base_transform])
        elif hasattr(transform, "parts"):
            parts += _flat(transform.parts)
        else:
            parts.append(transform)
    return parts


def _interval(support: Any) -> tuple[Any, Any] | None:  # noqa: ANN401 - torch leaves its constraints untyped
    support = getattr(support, "base_constraint", support)
    if hasattr(support, "lower_bound") and hasattr(support, "upper_bound"):
        return support.lower_bound, support.upper_bound
    return None


def _tensor(edge: Any) -> "Tensor":  # noqa: ANN401 - a number or a tensor
    import torch

    return torch.as_tensor(edge)


Layout = Literal["nhwc", "nchw"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Options:
    """The keyword arguments of `load_policy`, checked; its docstring explains them."""

    reads: Reads = None
    stats: Normaliser | None = None
    num_actions: int | None = None
    stochastic: bool = False
    noise: float = 0.0
    output: Output | None = None
    output_name: str | None = None
    layout: Layout | None = None
    batched: bool = True
    threads: int = 1

    def __post_init__(self) -> None:
        known = {"output": ("actions", "probabilities", "logits", "q_values"), "layout": ("nhwc", "nchw")}
        for name, values in known.items():
            if getattr(self, name) not in (None, *values):
                raise BadInput(f"{name}={getattr(self, name)!r}; expected one of {', '.join(values)}.")
        if not 0.0 <= self.noise < float("inf"):
            raise BadInput(f"noise={self.noise}; expected a standard deviation from 0, in the action's unit.")
        if self.noise > 0.0 and self.stochastic:
            raise BadInput("noise= adds noise to a deterministic action; with stochastic=True leave it out.")
        if self.threads < 1:
            raise BadInput(f"threads={self.threads}; expected a whole number from 1.")
        if self.num_actions is not None and self.num_actions < 1:
            raise BadInput(f"num_actions={self.num_actions}; expected a whole number from 1.")

    def only(self, what: str, *allowed: str) -> "Options":
        """These options, refused when one was given that does nothing for this kind of policy."""
        for one in fields(self):
            general = one.name in ("reads", "num_actions")
            if not general and one.name not in allowed and getattr(self, one.name) != one.default:
                raise BadInput(f"{one.name}= does nothing for {what}; leave it out.")
        return self

    def _changed(self) -> dict[str, Any]:
        """What shapes the policy, apart from defaults, as JSON can hold it; statistics by their digest."""
        values = {one.name: (getattr(self, one.name), one.default) for one in fields(self)}
        changed = {
            name: value
            for name, (value, default) in values.items()
            if value != default and name != "num_actions"
        }
        if self.stats is not None:
            changed["stats"] = self.stats.digest
        return changed

    def source(self, file: PolicyFile | None = None) -> dict[str, Any]:
        """Where a policy came from, as the kinds' fields."""
        found: dict[str, Any] = {"loaded_with": self._changed()}
        if file is not None:
            found |= {"path": file.path, "digest": file.digest}
        if self.stats is not None:
            found |= {"stats_path": self.stats.path, "stats_digest": self.stats.digest}
        return found
