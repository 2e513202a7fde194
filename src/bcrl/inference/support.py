"""Audits of an estimate, by random Fourier features fitted on one half of the units and judged on the other.

`action_support`: would the log show what happens when the policy acts? Logged actions are regressed on the
state, a = m(s) + noise, and the held-out residuals give the noise's deviation sd. A policy's action counts as
supported where |pi(s) - m(s)|^2 / sd^2, averaged over action dimensions, is at most 4, or at most the 99 %
quantile for Gaussian actions of that dimension, if that is less. The share of supported states is weighted
by where the policy is expected to go. One-hot columns make discrete actions a case of the same rule.

`predictable_error`: is anything left to learn in the TD errors? At the true value their mean given (s, a) is
zero, even if the transitions are noisy, so what an independent regression predicts of them on held-out data
is Bellman error.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bcrl import salts
from bcrl.data.dataset import Array, Dataset
from bcrl.data.select import sample_halves
from bcrl.estimate import FloatArray
from bcrl.policies.policy import TargetActions

_SAMPLE = 6000  # transitions in each half of an audit
_LIMIT, _WITHIN = 4.0, 0.99
_COSINES = 400
_SURE = 5.0  # standard deviations by which the weights' sum must differ from 0
_RIDGES = (1e-5, 1e-3, 1e-1, 1e1)
# Columns beyond which a square matrix of them is not made where there are fewer rows.
_WIDE = 2048


def action_support(
    states: Array,
    dataset: Dataset,
    target: TargetActions,
    weights: FloatArray,
    *,
    seed: int,
    sample: int = _SAMPLE,
) -> float:
    """Weighted share of states at which the policy's action lies among logged ones.

    Args:
        states: a vector per observation row, shape (N + E, k).
        dataset: the logged actions.
        target: the policy's actions at every row.
        weights: how often the policy is expected at each transition, shape (N,). They are estimates, and some
            may be negative: these cancel what noise has added elsewhere.
        seed: draws the sample and the cosines.
        sample: transitions used in each half.
    """
    generator = np.random.default_rng([seed, salts.ACTION_SUPPORT])
    fit, held = sample_halves(dataset, sample, generator, seed)
    actions = [dataset.action_matrix(dataset.actions[part]).astype(np.float64) for part in (fit, held)]
    mean = _predict(states[dataset.rows[fit]], actions[0], states[dataset.rows[held]], generator)
    deviation = np.sqrt(np.mean((actions[1] - mean) ** 2, axis=0))
    deviation = np.maximum(deviation, 1e-3 * max(float(np.abs(actions[1]).max()), 1e-12))
    chosen = target.take(dataset.rows[held])
    dims = mean.shape[1]
    distance = np.mean(((chosen.actions - mean[:, None]) / deviation) ** 2, axis=2)
    limit = min(_LIMIT, float(stats.chi2.ppf(_WITHIN, dims)) / dims)
    supported = np.sum(chosen.weights * (distance <= limit), axis=1)
    mass = weights[held]
    if mass.sum() <= _SURE * np.sqrt(np.square(mass).sum()):
        mass = np.maximum(mass, 0.0)  # too few transitions have weight for their noise to cancel
    return float(np.clip(mass @ supported / mass.sum(), 0.0, 1.0)) if mass.sum() > 0.0 else 0.0


@dataclass(frozen=True)
class Audit:
    """What an independent regression predicts of the TD errors.

    Attributes:
        error: root mean square of the predictable part, in the reward's unit.
        rows: transitions that it learned from, for each of its inputs.
    """

    error: float
    rows: float


def predictable_error(
    inputs: Array, td_errors: FloatArray, dataset: Dataset, *, seed: int, sample: int = _SAMPLE
) -> Audit:
    """The predictable part of TD errors.

    Args:
        inputs: a vector per transition, state and action together, shape (N, k).
        td_errors: r + discount V(s') - Q(s, a) of every transition, shape (N,).
        dataset: its units are kept apart.
        seed: draws the sample and the cosines.
        sample: transitions used in each half.
    """
    generator = np.random.default_rng([seed, salts.PREDICTABLE_ERROR])
    fit, held = sample_halves(dataset, sample, generator, seed)
    predicted = _predict(inputs[fit], td_errors[fit, None], inputs[held], generator)[:, 0]
    # E[delta m] is the second moment of the predictable part where m is right, and falls where m overfits.
    explained = float(np.mean(td_errors[held] ** 2) - np.mean((td_errors[held] - predicted) ** 2))
    return Audit(float(np.sqrt(max(explained, 0.0))), len(fit) / inputs.shape[1])


def _predict(inputs: Array, outputs: FloatArray, others: Array, generator: np.random.Generator) -> FloatArray:
    """Ridge regression on cosines: predictions at `others`, with the ridge that suits a held-back fifth."""
    basis = _Cosines.of(inputs, generator)
    phi = basis(inputs)
    cut = len(phi) - max(len(phi) // 5, 1)
    wide = phi.shape[1] > max(_WIDE, len(phi))
    scale = float(np.square(phi).sum() if wide else np.trace(phi.T @ phi)) / phi.shape[1]

    def solve(rows: int, ridge: float) -> FloatArray:
        known = phi[:rows]
        if wide:  # the same weights from a system of the rows
            gram = known @ known.T + ridge * scale * np.eye(rows)
            return np.asarray(known.T @ np.linalg.solve(gram, outputs[:rows]))
        gram = known.T @ known + ridge * scale * np.eye(phi.shape[1])
        return np.asarray(np.linalg.solve(gram, known.T @ outputs[:rows]))

    losses = [float(np.mean((phi[cut:] @ solve(cut, ridge) - outputs[cut:]) ** 2)) for ridge in _RIDGES]
    return np.asarray(basis(others) @ solve(len(phi), _RIDGES[int(np.argmin(losses))]))


@dataclass(frozen=True, eq=False)
class _Cosines:
    """Fourier features of standardised states, with their linear part and a constant."""

    centre: FloatArray
    scale: FloatArray
    weights: FloatArray
    phases: FloatArray

    @classmethod
    def of(cls, states: Array, generator: np.random.Generator) -> "_Cosines":
        x = np.asarray(states, dtype=np.float64)
        scale = x.std(axis=0)
        scale[scale < 1e-8] = 1.0
        # Distances between standardised points grow like sqrt(2 k).
        weights = generator.standard_normal((x.shape[1], _COSINES)) / np.sqrt(x.shape[1])
        return cls(x.mean(axis=0), scale, weights, generator.uniform(0.0, 2.0 * np.pi, _COSINES))

    def __call__(self, states: Array) -> FloatArray:
        x = (np.asarray(states, dtype=np.float64) - self.centre) / self.scale
        return np.concatenate([np.cos(x @ self.weights + self.phases), x, np.ones((len(x), 1))], axis=1)


def vectors_beside_frames(dataset: Dataset) -> bool:
    """Whether the log has vectors beside its frames."""
    return 0 < len(dataset.pixel_keys) < len(dataset.observations)


def states_of(dataset: Dataset, z: Array | None) -> Array:
    """A vector per observation row: the representation's own code `z`, or the log's vectors.

    Vectors beside the frames say more about the state than a code learned from the frames can.
    """
    if z is not None and not vectors_beside_frames(dataset):
        return z
    vectors = [v for k, v in dataset.observations.items() if k not in dataset.pixel_keys]
    flat: list[NDArray[np.float64]] = [np.asarray(v, dtype=np.float64).reshape(len(v), -1) for v in vectors]
    return np.concatenate(flat, axis=1) if flat else np.zeros((len(dataset) + dataset.num_episodes, 0))
