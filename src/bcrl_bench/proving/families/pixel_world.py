"""A blob that is pushed to the middle of a 32 x 32 frame, seen as pixels; the value by the Lyapunov equation.

A frame shows the position, two frames the velocity. Policies read the state, which is logged beside the
frames; methods read the frames. Few and small cases: an encoder is trained in each.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array
from bcrl_bench.proving.family import Family
from bcrl_bench.proving.regimes import Noisy
from bcrl_bench.proving.world import Policy
from bcrl_bench.worlds.lqr import LinearPolicy
from bcrl_bench.worlds.lqr_views import PixelLQRWorld, pixel_lqr

PUSHES = {"poor": (-0.04, -0.05), "medium": (-0.12, -0.12), "good": (-0.25, -0.2)}  # by position, velocity
SPIN = np.array([[0.0, -0.06], [0.06, 0.0]])


@dataclass(frozen=True, eq=False)
class Blob(PixelLQRWorld):
    """The world of bcrl_bench.worlds with a ladder; "other" pushes to the side as well."""

    @cached_property
    def policies(self) -> Mapping[str, Policy]:
        gains = {name: _gain(*push) for name, push in PUSHES.items()}
        side = _gain(-0.1, -0.15) + np.concatenate([SPIN, np.zeros((2, 2))], axis=1)
        return {name: LinearPolicy(gain, reads="state") for name, gain in [*gains.items(), ("other", side)]}

    def exact_value(self, policy: Policy, discount: float, horizon: int | None) -> float:
        world = self._with(policy, discount)
        return float(world.value if horizon is None else world.horizon_value(horizon, discount))

    def _with(self, policy: Policy, discount: float) -> PixelLQRWorld:
        """This world with the policy as its target, which its formulas speak of."""
        noise = policy.noise if isinstance(policy, Noisy) else 0.0
        linear = policy.policy if isinstance(policy, Noisy) else policy
        own: dict[str, Any] = {"gain": linear.gain, "target_std": noise, "discount": discount}
        return replace(self, **own)

    def place(self, observations: Mapping[str, Array]) -> NDArray[np.float64]:
        return np.asarray(observations["state"], dtype=np.float64)


def _gain(position: float, velocity: float) -> NDArray[np.float64]:
    return np.concatenate([position * np.eye(2), velocity * np.eye(2)], axis=1)


def make(seed: int) -> Blob:
    """Starts differ by world."""
    rng = np.random.default_rng([seed, 5])
    base: dict[str, Any] = vars(pixel_lqr())
    start = np.concatenate([rng.uniform(-0.6, 0.6, 2), np.zeros(2)])
    fields = {key: value for key, value in base.items() if key in Blob.__dataclass_fields__}
    return Blob(**(fields | {"mean0": start}))


FAMILY = Family(
    name="pixel_world", make=make, files=("../../worlds/lqr.py", "../../worlds/lqr_views.py"),
    # loud: more throws the blob out of the frame
    length=25, noise=0.03, loud=0.1, episodes=(30, 60),
    discounts=(0.9, 0.95), horizons=(None, 10), cases=20, worlds=4,
    longest=150,
)  # fmt: skip
