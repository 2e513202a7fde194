"""How wrong a value may be: influences, Student's t intervals from them, and a bootstrap to check them.

To first order the error of an estimate is a sum of contributions of independent units (clusters, else
episodes): its influence. Squares of the contributions add up to the variance, and two estimates from the same
units can be subtracted unit by unit, so that what moves both in the same way cancels. A method that
trains several times adds the part of each training. Where linear evaluation takes its influences from is in
linear/sandwich.py. Start states that come with the episodes belong to the influence of their unit; states
that were given apart from the data add a variance of their own.

The bootstrap redraws blocks of episodes by their moments. Each draw weights the blocks with independent
Exp(1) weights normalised to their number (the Bayesian bootstrap, Rubin 1981) and solves again; to first
order this equals resampling blocks, and no draw loses a block, so no draw is singular where the data are not.
Cost per draw: a weighted sum of d x d matrices and a solve, no pass over the data.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, stats

from bcrl.data.dataset import Dataset
from bcrl.errors import BadInput
from bcrl.estimate import Estimate, FloatArray, Interval
from bcrl.linear.moments import DEFAULT_RIDGE, Moments

NUM_BLOCKS = 32
# Iterations beyond this are cheaper by repeated squaring, for 10 to 600 features.
_LONG = 5_000


@dataclass(frozen=True, eq=False)
class Influence:
    """Contributions to the error of one value.

    Attributes:
        units: of each independent unit, scaled for small samples, shape (units,).
        trainings: of each training, shape (trainings,); empty for one training, whose error cannot be seen.
    """

    units: FloatArray
    trainings: FloatArray = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of(cls, estimate: Estimate) -> Self | None:
        """The influence of an estimate, which keeps it as one array: units, then trainings (`stats`)."""
        if estimate.influence is None:
            return None
        units = len(estimate.influence) - int(estimate.stats.get("trainings", 0))
        return cls(estimate.influence[:units], estimate.influence[units:])

    @property
    def array(self) -> FloatArray:
        """Units, then trainings: what `Estimate.influence` holds, shape (units + trainings,)."""
        return np.concatenate([self.units, self.trainings])

    @property
    def variance(self) -> float:
        """Squares add up."""
        parts = self.array
        return float(parts @ parts)

    @property
    def degrees_of_freedom(self) -> float:
        """Of the variance: Satterthwaite's (1946), from the fourth moment of the units' contributions.

        For C normal contributions about C - 1; fewer when a few units carry the error. The few degrees of
        freedom of the trainings are pooled with them by Welch's formula.
        """
        of_units = _satterthwaite(self.units)
        units, trainings = (float(part @ part) for part in (self.units, self.trainings))
        if trainings == 0.0:
            return of_units
        of_trainings = max(1, int(np.count_nonzero(self.trainings)) - 1)
        return (units + trainings) ** 2 / (units**2 / of_units + trainings**2 / of_trainings)

    def __sub__(self, other: "Influence") -> "Influence":
        """The influence of the difference of two values; both must be `paired`."""
        return Influence(self.units - other.units, self.trainings - other.trainings)


def _satterthwaite(units: FloatArray) -> float:
    """2 / (squared coefficient of variation of the variance estimate), between 1 and C - 1."""
    count = len(units)
    centred = units - units.mean()
    square = float(centred @ centred)
    if square == 0.0:
        return count - 1.0
    kurtosis = count * float((centred**4).sum()) / square**2
    return float(np.clip(2.0 * count / max(kurtosis - 1.0, 1e-9), 1.0, count - 1.0))


def paired(influences: Sequence[Influence | None]) -> list[Influence] | None:
    """Both with the same number of trainings (zeros added); None where their units differ."""
    known = [influence for influence in influences if influence is not None]
    if len(known) < len(influences) or len({len(influence.units) for influence in known}) > 1:
        return None
    most = max(len(influence.trainings) for influence in known)
    return [Influence(i.units, np.pad(i.trainings, (0, most - len(i.trainings)))) for i in known]


def sum_by_unit(contributions: FloatArray, unit: NDArray[Any], num_units: int) -> FloatArray:
    """Contributions added up by unit and scaled for few of them by sqrt(C / (C - 1)), shape (num_units,).

    Args:
        contributions: of episodes, starts or any other parts of a unit, shape (n,).
        unit: the number of each one's unit, shape (n,).
        num_units: C.
    """
    scale = np.sqrt(num_units / (num_units - 1.0)) if num_units > 1 else 1.0
    return np.asarray(scale * np.bincount(unit, weights=contributions, minlength=num_units))


def start_influence(start_values: FloatArray, unit: NDArray[Any], num_units: int) -> FloatArray:
    """Contribution of each unit's own start states to the error of their mean value, shape (num_units,)."""
    deviation = (start_values - start_values.mean()) / len(start_values)
    return sum_by_unit(deviation, unit, num_units)


def interval(
    value: float, influence: Influence, *, independent_variance: float = 0.0, level: float = 0.95
) -> tuple[float, Interval]:
    """Standard error of a value, and its interval.

    Args:
        value: the estimate.
        influence: what its error comes from.
        independent_variance: variance added by start states that are independent of the data
            (`start_variance`).
        level: confidence level.
    """
    error = math.sqrt(influence.variance + independent_variance)
    return error, interval_around(value, error, influence.degrees_of_freedom, level)


def unit_interval(
    dataset: Dataset, value: float, influence: FloatArray, level: float
) -> tuple[float | None, Interval | None, FloatArray | None]:
    """Standard error, interval and influence per independent unit, from the influence per episode.

    Student's t with units - 1 degrees of freedom; None where there is one unit or a number is not finite.
    """
    units = dataset.num_units
    if units < 2 or not np.isfinite(influence).all() or not np.isfinite(value):
        return None, None, None
    per_unit = sum_by_unit(influence, dataset.units, units)
    error = float(np.sqrt(np.square(per_unit).sum()))
    return error, interval_around(value, error, units - 1, level), per_unit


def interval_around(value: float, error: float, degrees: float, level: float) -> Interval:
    """value +- t error, with the t quantile of this level."""
    half = quantile(level, degrees) * error
    return Interval(value - half, value + half, level, degrees)


def quantile(level: float, degrees: float = math.inf) -> float:
    """How many standard errors a two-sided interval of this level reaches to either side."""
    return float(stats.t.ppf(0.5 + level / 2.0, degrees))


def start_variance(start_values: FloatArray) -> float:
    """Variance of the mean over start states that were sampled apart from the data; 0 for a single one."""
    return float(np.var(start_values, ddof=1) / len(start_values)) if len(start_values) > 1 else 0.0


def block_of(num_clusters: int, num_blocks: int = NUM_BLOCKS) -> NDArray[np.int64]:
    """The block of each cluster, dealt in turn so that every block spans all of the record."""
    return np.arange(num_clusters, dtype=np.int64) % min(num_blocks, num_clusters)


def bootstrap(
    blocks: Sequence[Moments],
    discount: float,
    generator: np.random.Generator,
    *,
    horizon: int | None = None,
    draws: int = 200,
    ridge: float = DEFAULT_RIDGE,
) -> FloatArray:
    """Redraw the blocks' weights and solve again: theta of every draw, shape (draws, d).

    Args:
        blocks: moments of disjoint groups of clusters.
        discount: of the value.
        generator: source of the weights.
        horizon: K iterations instead of the fixed point.
        draws: number of draws.
        ridge: in units of tr(Sigma) / d.
    """
    if len(blocks) < 2:
        raise BadInput(f"A bootstrap needs at least 2 blocks of episodes; got {len(blocks)}.")
    solve = (
        _fixed_points(blocks, discount, ridge)
        if horizon is None
        else _iterated(blocks, discount, ridge, horizon)
    )
    thetas = np.empty((draws, blocks[0].dim))
    for draw in range(draws):
        exponential = generator.standard_exponential(len(blocks))
        thetas[draw] = solve(exponential * (len(blocks) / exponential.sum()))
    return thetas


def bootstrap_error(thetas: FloatArray, x0: FloatArray, num_blocks: int) -> float:
    """Standard error of x0^T theta, start states held fixed: the draws' spread times sqrt(B / (B - 1))."""
    values = np.array([x0 @ theta for theta in thetas])
    return float(np.std(values, ddof=1)) * float(np.sqrt(num_blocks / (num_blocks - 1.0)))


def _fixed_points(
    blocks: Sequence[Moments], discount: float, ridge: float
) -> Callable[[FloatArray], FloatArray]:
    """Weights of the blocks -> LSTD."""
    dim = blocks[0].dim
    systems = np.stack(
        [m.sigma - discount * m.c + ridge * np.trace(m.sigma) / dim * np.eye(dim) for m in blocks]
    )
    bs = np.stack([m.b for m in blocks])
    return lambda weights: np.asarray(np.linalg.solve(np.tensordot(weights, systems, 1), weights @ bs))


def affine_power(operator: FloatArray, constant: FloatArray, times: int) -> FloatArray:
    """theta <- constant + operator theta, so many times from 0, by repeated squaring."""
    dim = len(constant)
    step = np.zeros((dim + 1, dim + 1))
    step[:dim, :dim], step[:dim, dim], step[dim, dim] = operator, constant, 1.0
    with np.errstate(over="ignore", invalid="ignore"):  # an operator that grows gives infinity or nan
        return np.asarray(np.linalg.matrix_power(step, times)[:dim, dim])


def _iterated(
    blocks: Sequence[Moments], discount: float, ridge: float, horizon: int
) -> Callable[[FloatArray], FloatArray]:
    """Weights of the blocks -> LSPE's weights after `horizon` iterations."""
    dim = blocks[0].dim
    sigmas = np.stack([m.sigma + ridge * np.trace(m.sigma) / dim * np.eye(dim) for m in blocks])
    cs, bs = np.stack([m.c for m in blocks]), np.stack([m.b for m in blocks])

    def solve(weights: FloatArray) -> FloatArray:
        factor = linalg.cho_factor(np.tensordot(weights, sigmas, 1))
        operator = linalg.cho_solve(factor, discount * np.tensordot(weights, cs, 1))
        constant, theta = linalg.cho_solve(factor, weights @ bs), np.zeros(dim)
        if horizon > _LONG:
            return affine_power(operator, constant, horizon)
        for _ in range(horizon):
            theta = constant + operator @ theta
        return np.asarray(theta)

    return solve
