"""The arithmetic of torch distributions that policies answer with: tables, draws, log densities.

Torch distributions draw from the global generator only, so a draw forks it, seeds the fork from the generator
passed in and puts the global state back. A Gaussian that is clipped to bounds has no density on them: there
`log_density` gives the logarithm of the mass beyond the bound (the density with respect to length plus the
two end points), so ratios of two such policies are right. A squashed Gaussian's density is infinite or
undefined where float32 rounds tanh to 1: actions are moved inside by 1e-6 of the range, as Stable-Baselines3
does.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array
from bcrl.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributions import Distribution

HAIR = 1e-6


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
