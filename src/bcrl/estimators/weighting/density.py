"""How likely a policy is to take the logged actions, and the noise that gives a deterministic policy a density.

A deterministic policy of continuous actions has none. With a bandwidth h it is replaced by a = pi(s) + h eps, eps normal,
truncated to the action bounds; whatever is then estimated is the value of that noisy policy, and says so.
"""

from dataclasses import dataclass

import numpy as np
from scipy import special

from bcrl.data.dataset import Array, Dataset
from bcrl.errors import BadInput
from bcrl.estimate import FloatArray
from bcrl.policies.policy import AnyPolicy, DiscretePolicy, Policy, Reads, StochasticPolicy, view


@dataclass(frozen=True)
class NoisyPolicy:
    """A deterministic policy plus Gaussian noise: the policy that importance weights can see.

    Attributes:
        policy: the deterministic policy.
        bandwidth: standard deviation of the noise, in the action's own unit.
        bounds: actions are kept inside by truncating the noise; None for actions without bounds.
    """

    policy: Policy
    bandwidth: float
    bounds: tuple[float, float] | None = None

    @property
    def reads(self) -> Reads:
        return self.policy.reads

    def _ends(self, centre: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Probabilities below the lower and the upper bound of the untruncated noise."""
        if self.bounds is None:
            return np.zeros_like(centre), np.ones_like(centre)
        low, high = ((bound - centre) / self.bandwidth for bound in self.bounds)
        return special.ndtr(low), special.ndtr(high)

    def _centre(self, observations: object) -> FloatArray:
        centre = np.asarray(self.policy.act(observations), dtype=np.float64)
        return centre if self.bounds is None else np.clip(centre, *self.bounds)

    def sample(self, observations: object, generator: np.random.Generator) -> Array:
        centre = self._centre(observations)
        low, high = self._ends(centre)
        noise = special.ndtri(np.clip(low + (high - low) * generator.random(centre.shape), 1e-12, 1 - 1e-12))
        actions: FloatArray = np.asarray(centre + self.bandwidth * noise, dtype=np.float64)
        return actions if self.bounds is None else np.clip(actions, *self.bounds)

    def log_prob(self, observations: object, actions: Array) -> FloatArray:
        centre = self._centre(observations)
        low, high = self._ends(centre)
        z = (np.asarray(actions, dtype=np.float64) - centre) / self.bandwidth
        density = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) - np.log(self.bandwidth) - np.log(high - low)
        return np.asarray(density.reshape(len(density), -1).sum(axis=1), dtype=np.float64)


def action_bounds(dataset: Dataset) -> tuple[float, float] | None:
    """(-1, 1) when every logged continuous action lies inside, the convention of control tasks; else no bounds."""
    inside = dataset.num_actions is None and len(dataset) > 0 and float(np.abs(dataset.actions).max()) <= 1.0
    return (-1.0, 1.0) if inside else None


def weighable(dataset: Dataset, policy: AnyPolicy, bandwidth: float | None, method: str) -> AnyPolicy:
    """The policy that the weights are for: itself, or with noise when it is deterministic and continuous."""
    random = isinstance(policy, DiscretePolicy | StochasticPolicy)
    if random or dataset.discrete:
        return policy
    if bandwidth is None:
        raise BadInput(
            f"{method} needs the density of the target policy's actions, and this policy is deterministic. Pass bandwidth= "
            "(standard deviation of noise, in the action's unit); the value is then that of the noisy policy."
        )
    if not isinstance(policy, Policy):
        raise BadInput(
            f"{type(policy).__name__} draws actions without log_prob; {method} needs log_prob(observations, actions)."
        )
    if not bandwidth > 0.0:
        raise BadInput(f"bandwidth={bandwidth}; expected a standard deviation above 0.")
    return NoisyPolicy(policy, bandwidth, action_bounds(dataset))


def target_log_prob(dataset: Dataset, policy: AnyPolicy, chunk: int = 4096) -> FloatArray:
    """Log probability (density) of every logged action under the policy, shape (N,); -inf where it is never taken."""
    parts = []
    for first in range(0, len(dataset), chunk):
        index = np.arange(first, min(first + chunk, len(dataset)))
        seen = view(dataset, policy, dataset.observe(dataset.rows[index]))
        actions = dataset.actions[index]
        if isinstance(policy, DiscretePolicy):
            probability = np.asarray(policy.probabilities(seen), dtype=np.float64)
            taken = probability[np.arange(len(index)), actions.reshape(-1).astype(np.int64)]
            parts.append(np.log(taken, out=np.full(len(index), -np.inf), where=taken > 0.0))
        elif isinstance(policy, StochasticPolicy):
            parts.append(np.asarray(policy.log_prob(seen, actions), dtype=np.float64))
        else:
            chosen = np.asarray(policy.act(seen)).reshape(len(index))
            parts.append(np.where(chosen == actions.reshape(-1), 0.0, -np.inf))
    result = np.concatenate(parts)
    if result.shape != (len(dataset),) or np.isnan(result).any() or (result == np.inf).any():
        raise BadInput(
            f"The policy's log_prob gave shape {result.shape} with {int(np.isnan(result).sum())} NaN; "
            f"expected {(len(dataset),)} numbers below infinity."
        )
    return result
