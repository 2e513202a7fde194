"""How Bellman complete and how well covered given features are, from their moments.

With gbar = E[phi(s', pi) | s, a] (zero after termination) and the least squares rho = Sigma^{-1} b and
M^T = A = discount Sigma^{-1} C, the best answer in the span to a target w^T phi misses by e_r + w^T e_phi,
where e_r = r - rho^T phi and e_phi = discount gbar - M phi. Its moments are

    R  = E[e_phi e_phi^T] = discount^2 (E[gbar gbar^T] - C^T Sigma^{-1} C)
    c  = E[e_phi e_r]     = discount   (E[gbar r]      - C^T Sigma^{-1} b)
    r0 = E[e_r^2]         = E[r^2] - b^T Sigma^{-1} b

from which epsilon.py makes the paper's eps_nu. Data give phi' and not gbar: the naive R uses E[phi' phi'^T]
and is too large by discount^2 E[Cov(phi' | s, a)]; `next_noise` and `next_pairs` correct it.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from bcrl.errors import BadInput
from bcrl.estimate import FloatArray
from bcrl.linear.lspe import spectral_radius
from bcrl.linear.moments import DEFAULT_RIDGE, Moments, Whitening, whiten


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Stability and coverage of the least squares problem.

    Attributes:
        spectral_radius: of A = discount Sigma^{-1} C; LSPE converges iff below 1.
        operator_norm: ||A||_Sigma; above 1 the error can grow before it shrinks.
        operator_norm_bound: discount sqrt(lambda_max(Sigma^{-1} Sigma')), at least operator_norm; above 1 is
            the only way to blow up.
        singular_values: of Sigma, largest first, shape (d,).
        lambda_min: smallest eigenvalue of Sigma.
        condition_number: largest over smallest eigenvalue of Sigma; infinite when singular.
    """

    spectral_radius: float
    operator_norm: float
    operator_norm_bound: float
    singular_values: FloatArray
    lambda_min: float
    condition_number: float


def spectrum(moments: Moments, discount: float, *, ridge: float = DEFAULT_RIDGE) -> Spectrum:
    """Spectra of Sigma and of the LSPE operator; O(d^3)."""
    mean = moments.mean
    whitening = whiten(mean.sigma, ridge=ridge)
    operator = whitening.operator(mean.c, discount)
    spread = whitening.matrix.T @ mean.sigma_next @ whitening.matrix
    eigenvalues = np.linalg.eigvalsh(mean.sigma)
    smallest, largest = max(float(eigenvalues[0]), 0.0), float(eigenvalues[-1])
    return Spectrum(
        spectral_radius=spectral_radius(operator),
        operator_norm=float(np.linalg.norm(operator, 2)),
        operator_norm_bound=discount * float(np.sqrt(np.linalg.eigvalsh(spread)[-1])),
        singular_values=np.maximum(eigenvalues[::-1], 0.0),
        lambda_min=smallest,
        condition_number=largest / smallest if smallest > 0.0 else np.inf,
    )


@dataclass(frozen=True, eq=False)
class BellmanResidual:
    """Second moments of the error of the best linear backup.

    Attributes:
        transition: R, shape (d, d), positive semi-definite.
        cross: c, shape (d,).
        reward: r0.
        reward_share: r0 / Var(r): share of the reward's variance that the features do not explain; nan for a
            constant reward.
        relative: eps_rel = sup of ||e_phi^T w|| over functions with ||w^T phi||_nu <= 1; free of the
            features' scale.
        clipped: trace of what was cut off to make R positive semi-definite (an underfit correction shows
            here).
        rho: least squares reward weights, shape (d,).
        operator: A, shape (d, d): the best w2 for a target w1 is rho + A w1.
        sigma: E[phi phi^T], shape (d, d): what an answer other than the best one costs.
        noise_removed: whether R is that of gbar; if not, the noise of random transitions counts as residual.
    """

    transition: FloatArray
    cross: FloatArray
    reward: float
    reward_share: float
    relative: float
    clipped: float
    rho: FloatArray
    operator: FloatArray
    sigma: FloatArray
    noise_removed: bool


def bellman_residual(
    moments: Moments,
    discount: float,
    *,
    next_second: FloatArray | None = None,
    noise: FloatArray | None = None,
    ridge: float = DEFAULT_RIDGE,
) -> BellmanResidual:
    """R, c and r0 of the module's docstring.

    Args:
        moments: sums over the transitions.
        discount: of the target values.
        next_second: E[gbar gbar^T] where two next states per (s, a) are known (`next_pairs`); None uses
            E[phi' phi'^T], which is right for deterministic transitions and too large for random ones.
        noise: E[Cov(phi' | s, a)] from a held-out regression (`next_noise`), subtracted from E[phi' phi'^T].
        ridge: in units of tr(Sigma) / d.
    """
    if next_second is not None and noise is not None:
        raise BadInput("next_second and noise correct the same bias; pass one of them.")
    mean = moments.mean
    whitening = whiten(mean.sigma, ridge=ridge)
    second = mean.sigma_next if next_second is None else next_second
    if noise is not None:
        second = second - noise
    found = residual_of_means(
        whitening,
        sigma=mean.sigma,
        c=mean.c,
        b=mean.b,
        second=second,
        e=mean.e,
        reward_square=mean.reward_square,
        discount=discount,
    )
    variance = mean.reward_square - mean.reward**2
    return replace(
        found,
        reward_share=found.reward / variance if variance > 1e-12 * mean.reward_square else float("nan"),
        relative=float(np.sqrt(_top_eigenvalue(whitening.matrix.T @ found.transition @ whitening.matrix))),
        noise_removed=next_second is not None or noise is not None,
    )


def residual_of_means(
    whitening: Whitening,
    *,
    sigma: FloatArray,
    c: FloatArray,
    b: FloatArray,
    second: FloatArray,
    e: FloatArray,
    reward_square: float,
    discount: float,
) -> BellmanResidual:
    """R, c and r0 from means, where other features may answer than are backed up (inherent.py).

    Args:
        whitening: of sigma.
        sigma: E[phi phi^T] of the answering features, shape (d, d).
        c: E[phi gbar^T], gbar of the features backed up, shape (d, k).
        b: E[phi r], shape (d,).
        second: E[gbar gbar^T], shape (k, k).
        e: E[gbar r], shape (k,).
        reward_square: E[r^2].
        discount: of the target values.
    """
    white_c, white_b = whitening.matrix.T @ c, whitening.matrix.T @ b
    transition, clipped = _nonnegative(discount**2 * (second - white_c.T @ white_c))
    return BellmanResidual(
        transition=transition,
        cross=discount * (e - white_c.T @ white_b),
        reward=max(reward_square - float(white_b @ white_b), 0.0),
        reward_share=float("nan"),
        relative=float("nan"),
        clipped=clipped,
        rho=whitening.matrix @ white_b,
        operator=discount * (whitening.matrix @ white_c),
        sigma=sigma,
        noise_removed=True,
    )


def _nonnegative(matrix: FloatArray) -> tuple[FloatArray, float]:
    """The nearest positive semi-definite matrix, and the trace that was cut off."""
    eigenvalues, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    kept = np.maximum(eigenvalues, 0.0)
    return (vectors * kept) @ vectors.T, float((kept - eigenvalues).sum())


def _top_eigenvalue(matrix: FloatArray) -> float:
    return max(float(linalg.eigvalsh(matrix)[-1]), 0.0)


def next_pairs(first: FloatArray, second: FloatArray) -> FloatArray:
    """E[gbar gbar^T] from two independent draws of phi(s', pi) per (s, a), both (n, d) and masked."""
    product = first.T @ second / len(first)
    return np.asarray(0.5 * (product + product.T))


def next_noise(next_phi: FloatArray, predicted: FloatArray) -> FloatArray:
    """E[Cov(phi' | s, a)] from predictions of E[phi' | s, a] made on held-out data, both (n, d) and masked.

    Underfit predictions make it too large (R too small, see `clipped`); predictions fitted on the same rows
    too small.
    """
    error = np.asarray(next_phi, dtype=np.float64) - predicted
    return np.asarray(error.T @ error / len(error))
