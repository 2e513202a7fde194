"""A toy that hops on one leg and falls when it tilts too far, which ends the world.

State: height, its speed, tilt, its rate, forward speed. Actions: thrust of the leg (felt on the ground) and
torque. Leaning forward gains speed and risks the fall. Reward while it stands: 1 + speed - 0.05 |a|^2.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array
from bcrl_bench.proving.controllers import Controller
from bcrl_bench.proving.family import Family
from bcrl_bench.proving.world import Policy

STEP, FALLEN = 0.05, 0.45  # seconds, radians


def balance(stiff: float, damp: float, lean: float, thrust: float) -> Controller:
    """Torque towards a lean, thrust while on the ground."""

    def act(seen: Array) -> Array:
        height, _, tilt, rate, _ = seen.astype(np.float64).T
        torque = -stiff * (tilt - lean) - damp * rate
        return np.stack([np.where(height < 0.0, thrust, 0.0), np.clip(torque, -1.0, 1.0)], axis=1)

    return Controller(act)


@dataclass(frozen=True, eq=False)
class Hopper:
    """Heights are measured from where the leg's spring touches the ground."""

    spring: float
    topple: float
    policies: Mapping[str, Policy]
    num_actions: None = None

    def start(self, num: int, rng: np.random.Generator) -> Array:
        state = 0.05 * rng.standard_normal((num, 5))
        state[:, 0] += 0.1
        return state

    def observe(self, state: Array) -> Array:
        return state

    def step(
        self, state: Array, actions: Array, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], Array, NDArray[np.bool_]]:
        thrust, torque = np.clip(actions, -1.0, 1.0).T
        height, rise, tilt, rate, speed = state.T
        ground = height < 0.0
        lift = np.where(ground, -self.spring * height - 1.5 * rise + 4.0 * np.maximum(thrust, 0.0), 0.0)
        rise = rise + STEP * (lift - 5.0)
        pull = self.topple * np.sin(tilt) + np.where(ground, 8.0, 3.0) * torque
        rate = rate + STEP * pull + 0.04 * rng.standard_normal(len(state))
        speed = speed + STEP * (np.where(ground, 12.0 * tilt * (0.5 + thrust), 0.0) - 0.6 * speed)
        tilt = tilt + STEP * rate
        following = np.stack([height + STEP * rise, rise, tilt, rate, speed], axis=1)
        rewards = 1.0 + state[:, 4] - 0.05 * (np.clip(actions, -1.0, 1.0) ** 2).sum(axis=1)
        return rewards, following, np.abs(tilt) > FALLEN


def make(seed: int) -> Hopper:
    rng = np.random.default_rng([8, seed])
    ladder = {
        "poor": balance(1.6, 0.25, 0.02, 0.3),
        "medium": balance(3.0, 0.5, 0.08, 0.5),
        "good": balance(5.0, 1.0, 0.15, 0.8),
        "other": balance(2.5, 0.9, -0.03, 0.9),
    }
    return Hopper(float(rng.uniform(40.0, 70.0)), float(rng.uniform(5.0, 7.0)), ladder)


FAMILY = Family(
    name="hopper_toy", make=make, files=("../controllers.py",),
    length=200, noise=0.3, episodes=(30, 50, 100),
    discounts=(0.95, 0.98, 0.99), horizons=(None, 100),
    rollouts=1_000, longest=550,
)  # fmt: skip
