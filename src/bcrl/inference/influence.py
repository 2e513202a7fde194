"""Where the error of a value comes from: one number for each independent unit, and for each training.

To first order the error of an estimate is a sum of contributions of independent units (clusters, else
episodes): its influence. Squares of the contributions add up to the variance, and two estimates from the same
units can be subtracted unit by unit, so that what moves both in the same way cancels. A method that
trains several times adds the part of each training.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bcrl.estimate import Estimate, FloatArray


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
