"""States and actions as short standardised vectors: what views look at, of a log and of any other state."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl import salts
from bcrl.data.dataset import Array, Dataset
from bcrl.estimate import FloatArray
from bcrl.policies.policy import TargetActions

_DRAWS = 6  # actions a state of a policy with more choices
_ACTION_COLUMNS = 16  # most columns of an action
_STATE_COLUMNS = 40  # most columns of a state
_SAMPLE = 4_000  # observations that centre and scale are made from


@dataclass(frozen=True, eq=False)
class Codes:
    """A vector for every observation and action: the log's vectors, or coarse pictures of its frames.

    Attributes:
        pixel_keys: observations that are frames.
        centre, scale: of an observation's raw columns.
        projection: of them onto the directions of largest variance where there are many; None for few.
        directions: what one-hot columns of many actions become, a few random ones; None for few actions.
        spread: standard deviation of each action column in the log.
    """

    pixel_keys: tuple[str, ...]
    centre: FloatArray
    scale: FloatArray
    projection: FloatArray | None
    directions: FloatArray | None
    spread: FloatArray

    @classmethod
    def of(cls, dataset: Dataset, actions: Array, seed: int) -> "Codes":
        """From a sample of the log's observations, and from these action matrices of it."""
        generator = np.random.default_rng([seed, salts.VIEWS, 1])
        count = min(_SAMPLE, dataset.num_observations)
        rows = np.sort(generator.choice(dataset.num_observations, count, False))
        raw = _raw_codes(dataset.observe(rows), dataset.pixel_keys)
        centre, scale = raw.mean(axis=0), _spread(raw)
        projection = None
        if raw.shape[1] > _STATE_COLUMNS:
            _, values, right = np.linalg.svd((raw - centre) / scale, full_matrices=False)
            values = np.maximum(values[:_STATE_COLUMNS], 1e-12)
            projection = right[:_STATE_COLUMNS].T / values * math.sqrt(len(raw))
        directions = _directions(dataset, seed)
        spread = _spread(_compact(actions, directions))
        return cls(dataset.pixel_keys, centre, scale, projection, directions, spread)

    def rows(self, dataset: Dataset, rows: NDArray[np.int64]) -> FloatArray:
        """Codes of these observation rows of a log."""
        step = 4_096 if self.pixel_keys else max(len(rows), 1)
        parts = [self.states(dataset.observe(rows[i : i + step])) for i in range(0, len(rows), step)]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.centre)))

    def states(self, observations: Mapping[str, NDArray[Any]]) -> FloatArray:
        """Codes of any observations, by key, shape (n, k)."""
        raw = (_raw_codes(observations, self.pixel_keys) - self.centre) / self.scale
        return np.clip(raw if self.projection is None else raw @ self.projection, -8.0, 8.0)

    def actions(self, actions: NDArray[Any]) -> FloatArray:
        """Codes of action matrices, shape (..., k)."""
        return _compact(actions, self.directions) / self.spread

    def pairs(self, states: FloatArray, actions: NDArray[Any]) -> FloatArray:
        """Each state beside each of its actions (n, m, action_dim): shape (n, m, k)."""
        coded = self.actions(actions)
        count, draws, _ = coded.shape
        beside = [np.repeat(states[:, None], draws, axis=1), coded]
        return np.concatenate(beside, axis=2).reshape(count, draws, -1)


def _directions(dataset: Dataset, seed: int) -> FloatArray | None:
    if not dataset.discrete or dataset.action_dim <= _ACTION_COLUMNS:
        return None
    generator = np.random.default_rng([seed, salts.VIEWS, 3])
    drawn = generator.standard_normal((dataset.action_dim, _ACTION_COLUMNS))
    return np.asarray(drawn / math.sqrt(_ACTION_COLUMNS))


def _compact(actions: NDArray[Any], directions: FloatArray | None) -> FloatArray:
    if directions is None:
        return np.asarray(actions, dtype=np.float64)
    return np.asarray(directions[np.asarray(actions).argmax(axis=-1)])


def _spread(values: FloatArray) -> FloatArray:
    """Standard deviation of each column; 1 for constant ones."""
    deviation = values.std(axis=0)
    return np.where(deviation > 1e-8 * np.maximum(np.abs(values).max(axis=0), 1e-300), deviation, 1.0)


def drawn(target: TargetActions, generator: np.random.Generator) -> TargetActions:
    """At most `_DRAWS` actions a state: the first draws, or a sample of exact ones."""
    count, choices = target.weights.shape
    if choices <= _DRAWS or not target.exact:
        return target.first(_DRAWS)
    cumulated = np.cumsum(target.weights, axis=1)
    cumulated /= cumulated[:, -1:]
    # Evenly spread points with one random shift a row: a stratified sample.
    points = (np.arange(_DRAWS) + generator.random((count, 1))) / _DRAWS
    places = np.stack([(cumulated < point[:, None]).sum(axis=1) for point in points.T], axis=1)
    actions = target.actions[np.arange(count)[:, None], np.minimum(places, choices - 1)]
    return TargetActions(actions, np.full((count, _DRAWS), 1.0 / _DRAWS))


def _raw_codes(observations: Mapping[str, NDArray[Any]], pixel_keys: tuple[str, ...]) -> FloatArray:
    """Vectors side by side; frames only where there are no vectors, as means over an 8 x 8 grid."""
    vectors = vectors_of(observations, pixel_keys)
    if vectors is not None:
        return vectors
    return np.concatenate([_coarse(np.asarray(v)) for v in observations.values()], axis=1)


def vectors_of(observations: Mapping[str, NDArray[Any]], pixel_keys: tuple[str, ...]) -> FloatArray | None:
    """All that is not frames, side by side; None where there is nothing else."""
    flat = [
        np.asarray(v, dtype=np.float64).reshape(len(v), -1)
        for key, v in observations.items()
        if key not in pixel_keys
    ]
    return np.concatenate(flat, axis=1) if flat else None


def _coarse(frames: NDArray[Any], cells: int = 8) -> FloatArray:
    count, height, width, channels = frames.shape
    down, across = max(height // cells, 1), max(width // cells, 1)
    cut = frames[:, : height // down * down, : width // across * across].astype(np.float32)
    blocks = cut.reshape(count, height // down, down, width // across, across, channels)
    return np.asarray(blocks.mean(axis=(2, 4)).reshape(count, -1), dtype=np.float64)
