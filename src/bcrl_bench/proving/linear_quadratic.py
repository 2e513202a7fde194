"""Linear dynamics, quadratic cost, linear policies with or without Gaussian noise: exact values.

x' = A x + B a + w,    r = -(x^T Q x + a^T R a) * luck,    E[luck] = 1
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from bcrl.data.dataset import Array
from bcrl_bench.proving.regimes import Noisy
from bcrl_bench.proving.world import Policy
from bcrl_bench.worlds.lqr import LinearPolicy, LQRWorld, calm, random_dynamics

Floats = NDArray[np.float64]
STRENGTH = {"poor": 0.15, "medium": 0.5, "good": 0.95}  # shares of the optimal gain


@dataclass(frozen=True, eq=False)
class LinearQuadratic:
    """A world of bcrl_bench.worlds.lqr with a ladder of gains.

    Attributes:
        base: dynamics, cost and start.
        tail: rewards are multiplied by a Pareto draw of this index (mean 1); None leaves them as they are.
    """

    base: Any
    tail: float | None = None
    num_actions: None = None

    @cached_property
    def policies(self) -> Mapping[str, Policy]:
        """Shares of the optimal gain; "other" is optimal for another cost, and turned a little."""
        a, b = self.base.a, self.base.b
        best = _riccati(a, b, self.base.cost_x, self.base.cost_a)
        wrong = _riccati(a, b, self.base.cost_x[::-1, ::-1], 4.0 * self.base.cost_a)
        turn = 0.15 * np.abs(best).mean() * np.random.default_rng(3).standard_normal(best.shape)
        gains = {name: share * best for name, share in STRENGTH.items()} | {"other": wrong + turn}
        return {name: LinearPolicy(calm(a, b, gain)) for name, gain in gains.items()}

    def _asked(self, policy: Policy, discount: float) -> Any:  # noqa: ANN401 - worlds.lqr is not typed
        noisy = isinstance(policy, Noisy)
        gain, std = (policy.policy.gain, policy.noise) if noisy else (policy.gain, 0.0)
        return replace(self.base, gain=gain, target_std=std, discount=discount)

    def exact_value(self, policy: Policy, discount: float, horizon: int | None) -> float:
        asked = self._asked(policy, discount)
        return float(asked.value if horizon is None else asked.horizon_value(horizon, discount))

    def exact_v(self, policy: Policy, observations: Array, discount: float, horizon: int | None) -> Floats:
        asked = self._asked(policy, discount)
        if horizon is None:
            return np.asarray(asked.v(observations))
        still = np.zeros_like(asked.cov0)
        points = (replace(asked, mean0=x, cov0=still) for x in np.asarray(observations, dtype=np.float64))
        return np.array([point.horizon_value(horizon, discount) for point in points])

    def start(self, num: int, rng: np.random.Generator) -> Array:
        return np.asarray(self.base.start(num, rng))

    def observe(self, state: Array) -> Array:
        return state

    def step(
        self, state: Array, actions: Array, rng: np.random.Generator
    ) -> tuple[Floats, Array, NDArray[np.bool_]]:
        rewards, following, ended = self.base.step(state, actions, rng)
        if self.tail is not None:
            rewards = rewards * (rng.pareto(self.tail, len(state)) * (self.tail - 1.0))
        return rewards, following, ended


def linear_quadratic(seed: int, tail: float | None = None, size: int = 4, inputs: int = 2) -> LinearQuadratic:
    """Random stable dynamics."""
    dynamics = random_dynamics(size, inputs, 100 + seed, 0.95)
    nothing = np.zeros((inputs, size))
    base = LQRWorld(
        **dynamics,
        cost_x=np.diag(np.linspace(1.0, 0.4, size)),
        cost_a=0.2 * np.eye(inputs),
        noise=0.05 * np.eye(size),
        gain=nothing,
        target_std=0.0,
        behaviour_gain=nothing,
        behaviour_std=1.0,
        mean0=np.linspace(1.0, -1.0, size),
        cov0=0.2 * np.eye(size),
        discount=0.9,
    )
    return LinearQuadratic(base, tail)


def _riccati(a: Floats, b: Floats, cost_x: Floats, cost_a: Floats) -> Floats:
    """The optimal gain K of a = K x."""
    p = linalg.solve_discrete_are(a, b, cost_x, cost_a)
    return np.asarray(-np.linalg.solve(cost_a + b.T @ p @ b, b.T @ p @ a))
