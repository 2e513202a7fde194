"""How wrong the value may be: Student's t intervals from influences.

The quantile has the influence's degrees of freedom (influence.py); where linear evaluation takes its
influences from is in linear/sandwich.py. Start states that come with the episodes belong to the influence of
their unit; states that were given apart from the data add a variance of their own.
"""

import math

import numpy as np
from scipy import stats

from bcrl.data.dataset import Dataset
from bcrl.estimate import FloatArray, Interval
from bcrl.inference.influence import Influence, sum_by_unit


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
