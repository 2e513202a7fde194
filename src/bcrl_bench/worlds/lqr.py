"""Linear dynamics, quadratic cost, linear policies: value by the Lyapunov equation.

    x' = A x + B a + w,   r = -(x^T Q x + a^T R a)
    target a = K x (+ Gaussian noise),   behaviour a = K_b x + Gaussian noise

The features [1, z_i z_j] of z = (x, a) are exactly Bellman complete. lqr_views.py shows such worlds through a
network and as pixels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg

from bcrl_bench.worlds.base import World


def _same(observations):
    return observations


@dataclass(frozen=True, eq=False)
class LinearPolicy:
    """a = K x, deterministic."""

    gain: np.ndarray
    decode: Callable = _same
    reads: str | None = None

    def act(self, observations):
        return np.asarray(self.decode(observations), dtype=np.float64) @ self.gain.T


@dataclass(frozen=True, eq=False)
class GaussianPolicy:
    """a = K x + std * noise."""

    gain: np.ndarray
    std: float
    decode: Callable = _same
    reads: str | None = None

    def mean(self, observations):
        return np.asarray(self.decode(observations), dtype=np.float64) @ self.gain.T

    def sample(self, observations, generator):
        mean = self.mean(observations)
        return mean + self.std * generator.standard_normal(mean.shape)

    def log_prob(self, observations, actions):
        error = (actions - self.mean(observations)) / self.std
        return -0.5 * (error**2).sum(axis=1) - error.shape[1] * np.log(self.std * np.sqrt(2.0 * np.pi))


@dataclass(frozen=True, eq=False)
class LQRWorld(World):
    """The world of the module's docstring, seen directly.

    Attributes:
        a, b: dynamics, (n, n) and (n, m).
        cost_x, cost_a: Q and R.
        noise: covariance of w, (n, n).
        gain, target_std: the target policy; 0 is deterministic.
        behaviour_gain, behaviour_std: the behaviour policy.
        mean0, cov0: Gaussian start distribution.
    """

    a: np.ndarray
    b: np.ndarray
    cost_x: np.ndarray
    cost_a: np.ndarray
    noise: np.ndarray
    gain: np.ndarray
    target_std: float
    behaviour_gain: np.ndarray
    behaviour_std: float
    mean0: np.ndarray
    cov0: np.ndarray
    discount: float
    num_actions: None = None
    reads = None

    @cached_property
    def target(self):
        if self.target_std == 0.0:
            return LinearPolicy(self.gain, self.decode, self.reads)
        return GaussianPolicy(self.gain, self.target_std, self.decode, self.reads)

    @cached_property
    def behaviour(self):
        return GaussianPolicy(self.behaviour_gain, self.behaviour_std, self.decode, self.reads)

    def decode(self, observations):
        """The state x of an observation."""
        return observations

    def _step_cost(self):
        """Cost of a step under the target: x^T S x + s."""
        own = self.target_std**2 * np.trace(self.cost_a)
        return self.cost_x + self.gain.T @ self.cost_a @ self.gain, own

    def _spread(self):
        """Covariance that one step under the target adds."""
        return self.noise + self.target_std**2 * self.b @ self.b.T

    @cached_property
    def quadratic(self):
        """P and p with V(x) = -(x^T P x + p)."""
        closed, (cost, own) = self.a + self.b @ self.gain, self._step_cost()
        matrix = linalg.solve_discrete_lyapunov(np.sqrt(self.discount) * closed.T, cost)
        return matrix, (own + self.discount * np.trace(matrix @ self._spread())) / (1.0 - self.discount)

    @property
    def value(self):
        matrix, constant = self.quadratic
        return -float(np.trace(matrix @ (np.outer(self.mean0, self.mean0) + self.cov0)) + constant)

    def horizon_value(self, horizon, discount):
        closed, (cost, own) = self.a + self.b @ self.gain, self._step_cost()
        matrix, constant = np.zeros_like(self.a), 0.0
        for _ in range(horizon):
            constant = own + discount * (constant + np.trace(matrix @ self._spread()))
            matrix = cost + discount * closed.T @ matrix @ closed
        return -float(np.trace(matrix @ (np.outer(self.mean0, self.mean0) + self.cov0)) + constant)

    def _state(self, observations):
        return np.asarray(
            self.decode(observations if self.reads is None else observations[self.reads]), dtype=np.float64
        )

    def v(self, observations):
        matrix, constant = self.quadratic
        x = self._state(observations)
        return -(np.einsum("ni,ij,nj->n", x, matrix, x) + constant)

    def q(self, observations, actions):
        x = self._state(observations)
        matrix, constant = self.quadratic
        following = x @ self.a.T + actions @ self.b.T
        cost = np.einsum("ni,ij,nj->n", x, self.cost_x, x) + np.einsum(
            "ni,ij,nj->n", actions, self.cost_a, actions
        )
        later = (
            np.einsum("ni,ij,nj->n", following, matrix, following) + np.trace(matrix @ self.noise) + constant
        )
        return -(cost + self.discount * later)

    def features(self, observations, actions):
        z = np.concatenate([self._state(observations), actions], axis=1)
        return self._monomials(z, np.zeros((z.shape[1], z.shape[1])))

    def policy_features(self, observations):
        x = self._state(observations)
        z = np.concatenate([x, x @ self.gain.T], axis=1)
        n, m = self.b.shape
        return self._monomials(z, self.target_std**2 * np.diag(np.repeat([0.0, 1.0], [n, m])))

    def start_features(self):
        n, m = self.b.shape
        lift = np.concatenate([np.eye(n), self.gain])
        spread = lift @ self.cov0 @ lift.T + self.target_std**2 * np.diag(np.repeat([0.0, 1.0], [n, m]))
        return self._monomials((lift @ self.mean0)[None], spread)[0]

    @staticmethod
    def _monomials(z, covariance):
        rows, columns = np.triu_indices(z.shape[1])
        return np.concatenate(
            [np.ones((len(z), 1)), z[:, rows] * z[:, columns] + covariance[rows, columns]], axis=1
        )

    def start(self, num, rng):
        return rng.multivariate_normal(
            self.mean0, self.cov0, size=num, method="cholesky" if self._proper else "eigh"
        )

    @property
    def _proper(self):
        return bool(np.linalg.eigvalsh(self.cov0)[0] > 0.0)

    def observe(self, state):
        return state

    def step(self, state, actions, rng):
        cost = np.einsum("ni,ij,nj->n", state, self.cost_x, state)
        cost += np.einsum("ni,ij,nj->n", actions, self.cost_a, actions)
        shake = rng.standard_normal(state.shape) @ self._noise_root.T
        return -cost, state @ self.a.T + actions @ self.b.T + shake, np.zeros(len(state), dtype=bool)

    @cached_property
    def _noise_root(self):
        values, vectors = np.linalg.eigh(self.noise)
        return vectors * np.sqrt(np.maximum(values, 0.0))


def random_dynamics(n, m, seed, radius):
    """Random stable dynamics with gains that pull the state in different ways."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((n, n))
    b = rng.standard_normal((n, m)) / np.sqrt(n)
    return {"a": a * radius / np.abs(np.linalg.eigvals(a)).max(), "b": b}


def calm(a, b, gain):
    """The gain, halved until the closed loop is stable: random dynamics may have no finite value."""
    while np.abs(np.linalg.eigvals(a + b @ gain)).max() >= 1.0:
        gain = 0.5 * gain
    return gain


def lqr(seed=0, target_std=0.0, discount=0.9):
    """Two state dimensions, one action, process noise."""
    a = np.array([[0.9, 0.3], [-0.2, 0.8]])
    b = np.array([[0.1], [0.6]])
    if seed:
        a, b = random_dynamics(2, 1, seed, 0.85).values()
    return LQRWorld(
        a=a,
        b=b,
        cost_x=np.diag([1.0, 0.5]),
        cost_a=np.array([[0.2]]),
        noise=0.05 * np.eye(2),
        gain=calm(a, b, np.array([[-0.3, -0.4]])),
        target_std=target_std,
        behaviour_gain=calm(a, b, np.array([[0.1, 0.0]])),
        behaviour_std=0.6,
        mean0=np.array([1.0, -0.5]),
        cov0=0.2 * np.eye(2),
        discount=discount,
    )


def oscillators(turns=(0.3, 0.5, 0.7), behaviour_std=0.3, discount=0.99):
    """Undamped: pairs of coordinates that turn for ever, each pushed a little by its own action.

    The target does nothing and the behaviour adds noise to that, so its log covers the target; yet nothing
    shrinks from step to step but by the discount, and on few features LSPE blows up.
    """
    pairs, size = len(turns), 2 * len(turns)
    rotations = [[[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]] for t in turns]
    return LQRWorld(
        a=linalg.block_diag(*rotations),
        b=0.1 * np.kron(np.eye(pairs), [[0.0], [1.0]]),
        cost_x=np.diag(np.tile([1.0, 0.2], pairs)),
        cost_a=0.1 * np.eye(pairs),
        noise=0.02**2 * np.eye(size),
        gain=np.zeros((pairs, size)),
        target_std=0.0,
        behaviour_gain=np.zeros((pairs, size)),
        behaviour_std=behaviour_std,
        mean0=np.tile([1.0, 0.0], pairs),
        cov0=0.05 * np.eye(size),
        discount=discount,
    )
