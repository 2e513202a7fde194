"""The noise that gives a deterministic policy of continuous actions a density.

It has none of its own. With a bandwidth h it is replaced by a = pi(s) + h eps, eps normal, truncated to
the action bounds. The value is then that of this noisy policy, and a check says so.
"""

from dataclasses import dataclass

import numpy as np
from scipy import special

from bcrl.data.dataset import Array, Dataset
from bcrl.errors import BadInput
from bcrl.estimate import Check, FloatArray
from bcrl.policies.policy import AnyPolicy, DiscretePolicy, Policy, Reads, StochasticPolicy


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
        return self.sample_many(observations, generator, 1)[:, 0]

    def sample_many(self, observations: object, generator: np.random.Generator, count: int) -> Array:
        """Each draw as `sample` makes it; the policy itself, which may be slow, is asked once."""
        centre = self._centre(observations)
        low, high = self._ends(centre)
        levels = [low + (high - low) * generator.random(centre.shape) for _ in range(count)]
        noise = special.ndtri(np.clip(np.stack(levels, axis=1), 1e-12, 1 - 1e-12))
        actions: FloatArray = np.asarray(centre[:, None] + self.bandwidth * noise, dtype=np.float64)
        return actions if self.bounds is None else np.clip(actions, *self.bounds)

    def log_prob(self, observations: object, actions: Array) -> FloatArray:
        centre = self._centre(observations)
        low, high = self._ends(centre)
        z = (np.asarray(actions, dtype=np.float64) - centre) / self.bandwidth
        density = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) - np.log(float(self.bandwidth)) - np.log(high - low)
        return np.asarray(density.reshape(len(density), -1).sum(axis=1), dtype=np.float64)


def action_bounds(dataset: Dataset) -> tuple[float, float] | None:
    """(-1, 1) when every logged continuous action lies inside, as control tasks have it; else no bounds."""
    inside = dataset.num_actions is None and len(dataset) > 0 and float(np.abs(dataset.actions).max()) <= 1.0
    return (-1.0, 1.0) if inside else None


def with_density(dataset: Dataset, policy: AnyPolicy, bandwidth: float | None, method: str) -> AnyPolicy:
    """The policy itself, or with noise of this bandwidth where it is deterministic and continuous."""
    if isinstance(policy, DiscretePolicy | StochasticPolicy) or dataset.discrete:
        return policy
    if bandwidth is None:
        raise BadInput(
            f"{method} needs the density of the target policy's actions, but this policy is deterministic. "
            "Pass bandwidth= (standard deviation of noise, in the action's unit); "
            "the value is then that of the noisy policy."
        )
    if not isinstance(policy, Policy):
        name = type(policy).__name__
        raise BadInput(
            f"{name} draws actions without log_prob; {method} needs log_prob(observations, actions)."
        )
    if not bandwidth > 0.0:
        raise BadInput(f"bandwidth={bandwidth}; expected a standard deviation above 0.")
    return NoisyPolicy(policy, bandwidth, action_bounds(dataset))


def noise_checks(policy: AnyPolicy) -> tuple[Check, ...]:
    """One check that states the noise on a deterministic policy; none for the others."""
    if not isinstance(policy, NoisyPolicy):
        return ()
    meaning = (
        f"The value is that of the policy plus noise of standard deviation {policy.bandwidth:g} "
        "on its actions, not of the policy itself."
    )
    return (Check("noise on the policy", policy.bandwidth, None, "caution", meaning),)
