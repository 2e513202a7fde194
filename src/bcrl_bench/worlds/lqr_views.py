"""Linear quadratic worlds that are not seen directly: through a network beside distractors, and as pixels."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg

from bcrl_bench.worlds.lqr import LQRWorld, calm, random_dynamics


@dataclass(frozen=True, eq=False)
class RichLQRWorld(LQRWorld):
    """Four state dimensions behind a random two-layer network into 50, beside 50 distractors with dynamics of
    their own.

    The network is one to one on the states that occur, and the policies invert it: nothing but the
    observation is given.
    """

    inner: np.ndarray = None
    outer: np.ndarray = None
    drift: np.ndarray = None

    @cached_property
    def _inverse(self):
        return np.linalg.pinv(self.outer), np.linalg.pinv(self.inner)

    def decode(self, observations):
        outer, inner = self._inverse
        hidden = np.asarray(observations, dtype=np.float64)[:, : len(self.outer)] @ outer.T
        return np.arctanh(np.clip(hidden, -0.999999, 0.999999)) @ inner.T

    def observe(self, state):
        n = len(self.a)
        return np.concatenate([np.tanh(state[:, :n] @ self.inner.T) @ self.outer.T, state[:, n:]], axis=1)

    def start(self, num, rng):
        return np.concatenate([super().start(num, rng), rng.standard_normal((num, len(self.drift)))], axis=1)

    def step(self, state, actions, rng):
        n = len(self.a)
        reward, following, end = super().step(state[:, :n], actions, rng)
        noise = 0.5 * rng.standard_normal((len(state), len(self.drift)))
        return reward, np.concatenate([following, state[:, n:] @ self.drift.T + noise], axis=1), end


def rich_lqr(seed=0, discount=0.9):
    rng = np.random.default_rng(seed)
    drift = rng.standard_normal((50, 50))
    inner = rng.standard_normal((40, 4)) * 0.25
    dynamics = random_dynamics(4, 2, seed + 1, 0.85)
    a, b = dynamics.values()
    return RichLQRWorld(
        **dynamics,
        cost_x=np.diag([1.0, 0.7, 0.5, 0.3]),
        cost_a=0.2 * np.eye(2),
        noise=0.05 * np.eye(4),
        gain=calm(a, b, 0.3 * rng.standard_normal((2, 4))),
        target_std=0.0,
        behaviour_gain=calm(a, b, 0.2 * rng.standard_normal((2, 4))),
        behaviour_std=0.6,
        mean0=np.array([1.0, -0.5, 0.5, 0.0]),
        cov0=0.2 * np.eye(4),
        discount=discount,
        inner=inner,
        outer=rng.standard_normal((50, 40)) / np.sqrt(40),
        drift=drift * 0.9 / np.abs(np.linalg.eigvals(drift)).max(),
    )


@dataclass(frozen=True, eq=False)
class PixelLQRWorld(LQRWorld):
    """A blob on a 32 x 32 frame: the state is (position, velocity), a frame shows the position only.

    p' = p + v' : the velocity is the difference of the last two frames. Episodes start at rest, so the
    repeated first frame of a stack tells the truth. Observations: `pixels` (32, 32, 1) uint8 and `state`
    (4,); the policies read `state`.
    """

    size: int = 32
    stack: int = 2
    reads = "state"

    def observe(self, state):
        centre = (self.size - 1) / 2.0
        place = centre + state[:, :2] * centre / 2.0
        grid = np.arange(self.size)
        across = np.exp(-((grid - place[:, :1]) ** 2) / 8.0)
        down = np.exp(-((grid - place[:, 1:]) ** 2) / 8.0)
        frames = np.rint(255.0 * down[:, :, None] * across[:, None, :]).astype(np.uint8)
        return {"pixels": frames[..., None], "state": state}


def pixel_lqr(discount=0.9):
    eye, zero = np.eye(2), np.zeros((2, 2))
    keep = 0.7
    spin = np.array([[0.0, -0.04], [0.04, 0.0]])
    return PixelLQRWorld(
        a=np.block([[eye, keep * eye], [zero, keep * eye]]),
        b=np.block([[eye], [eye]]),
        cost_x=linalg.block_diag(eye, 0.5 * eye),
        cost_a=0.2 * eye,
        noise=0.002 * np.block([[eye, eye], [eye, eye]]),
        gain=np.concatenate([-0.25 * eye + spin, -0.2 * eye], axis=1),
        target_std=0.0,
        behaviour_gain=np.concatenate([-0.08 * eye - spin, -0.1 * eye], axis=1),
        behaviour_std=0.08,
        mean0=np.array([0.5, -0.3, 0.0, 0.0]),
        cov0=linalg.block_diag(0.04 * eye, zero),
        discount=discount,
    )
