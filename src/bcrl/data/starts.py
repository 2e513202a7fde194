"""Start states: where the value is asked for, and which independent unit each one came from."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array, Dataset
from bcrl.errors import BadInput


@dataclass(frozen=True, eq=False)
class Starts:
    """Start observations by key (n0 rows, pixels stacked), and the unit of each: None when they came from
    elsewhere.

    Starts that begin the dataset's own episodes share their episode's luck, which the interval has to know.
    """

    observations: Mapping[str, Array]
    unit: NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(next(iter(self.observations.values())))

    @cached_property
    def digest(self) -> str:
        """A hash of the observations."""
        content = hashlib.sha256()
        for key, values in sorted(self.observations.items()):
            content.update(repr((key, values.shape, values.dtype.str)).encode())
            content.update(np.ascontiguousarray(values).data)
        return content.hexdigest()


def starts_of(dataset: Dataset, observations: Array | Mapping[str, Array] | None = None) -> Starts:
    """The dataset's own start states, or those that the user gave."""
    if observations is None:
        own = dataset.given_starts is None
        return Starts(dataset.start_observations(), dataset.units if own else None)
    keyed = dataset.keyed(observations)
    for key, value in keyed.items():
        expected = dataset.observe(np.zeros(1, dtype=np.int64))[key].shape[1:]
        if value.ndim == 0 or value.shape[1:] != expected or len(value) == 0:
            raise BadInput(
                f"starts[{key!r}] has shape {value.shape}; expected (n, {', '.join(map(str, expected))}) "
                "with n >= 1."
            )
        if np.issubdtype(value.dtype, np.floating) and not np.isfinite(value).all():
            raise BadInput(f"starts[{key!r}] holds NaN or infinity; expected finite numbers.")
    return Starts(keyed, None)
