"""What views and audits read: a log and one policy's actions on it, as vectors."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl import salts
from bcrl.data.dataset import Array, Dataset
from bcrl.data.select import some_episodes
from bcrl.estimate import FloatArray
from bcrl.policies.policy import FEW_ACTIONS, TargetActions
from bcrl.question import Question, Target

ROWS = 12_000  # transitions that the views look at
_DRAWS = 6  # actions a state of a policy with more choices
_ACTION_COLUMNS = 16  # most columns of an action


@dataclass(frozen=True, eq=False)
class Inputs:
    """What the views read: transitions of whole episodes as standardised vectors.

    Attributes:
        transitions: their numbers in the dataset, shape (n,).
        here: state and logged action, shape (n, k).
        acting: state and the policy's actions there, shape (n, m, k), with `acting_weights` (n, m).
        following: next state and the policy's actions there, likewise.
        after: next state and the next logged action, shape (n, k); only where `has_after`.
        starts: start states and the policy's actions there, shape (n0, m, k), with `start_weights`.
        logged_starts: places in `here` of each episode's first transition.
        state_width: how many of the k columns are the state's.
        discrete: whether actions are one of finitely many.
    """

    transitions: NDArray[np.int64]
    here: FloatArray
    acting: FloatArray
    acting_weights: FloatArray
    following: FloatArray
    following_weights: FloatArray
    after: FloatArray
    has_after: NDArray[np.bool_]
    starts: FloatArray
    start_weights: FloatArray
    logged_starts: NDArray[np.int64]
    rewards: FloatArray
    terminated: NDArray[np.bool_]
    episode: NDArray[np.int64]
    step: NDArray[np.int64]
    state_width: int
    discrete: bool


def inputs_of(question: Question, target: Target, rows: int = ROWS) -> Inputs:
    """The question's log and one policy's actions on it, as the views read them."""
    dataset, seed = question.dataset, question.seed
    part = some_episodes(dataset, rows, seed) if len(dataset) > rows else None
    chosen = np.arange(dataset.num_episodes) if part is None else _episodes_of(dataset, part.rows)
    keep = np.isin(dataset.episode_of, chosen)
    transitions = np.flatnonzero(keep)
    generator = np.random.default_rng([seed, salts.VIEWS])
    codes = StateCodes.of(dataset, seed)
    here_rows = dataset.rows[transitions]
    states, next_states = codes.rows(here_rows), codes.rows(here_rows + 1)
    compact = _compact(dataset, seed)
    actions = compact(dataset.action_matrix(dataset.actions[transitions]))
    spread = _spread(actions)
    own_actions = drawn(target.actions.take(here_rows), generator)
    next_actions = drawn(target.actions.take(here_rows + 1), generator)
    start_actions = drawn(target.start_actions, generator)
    start_states = codes.observations(question.starts.observations)
    limit = np.linspace(0, len(start_states) - 1, min(len(start_states), 2_000)).astype(np.int64)
    episode = dataset.episode_of[transitions]
    same = np.append(episode[1:] == episode[:-1], False)
    terminated = np.asarray(dataset.terminated[transitions])
    after = np.concatenate([next_states, np.vstack([actions[1:], actions[:1]]) / spread], axis=1)
    first = np.flatnonzero(np.append(True, episode[1:] != episode[:-1]))
    return Inputs(
        transitions=transitions,
        here=np.concatenate([states, actions / spread], axis=1),
        acting=_pairs(states, compact(own_actions.actions) / spread),
        acting_weights=own_actions.weights,
        following=_pairs(next_states, compact(next_actions.actions) / spread),
        following_weights=next_actions.weights,
        after=after,
        has_after=same,
        starts=_pairs(start_states[limit], compact(start_actions.actions[limit]) / spread),
        start_weights=start_actions.weights[limit],
        logged_starts=first,
        rewards=np.asarray(dataset.rewards[transitions], dtype=np.float64),
        terminated=terminated,
        episode=episode,
        step=transitions - dataset.offsets[:-1][episode],
        state_width=states.shape[1],
        discrete=dataset.discrete,
    )


def td_of(
    q: Callable[[Mapping[str, Array], NDArray[np.float32]], FloatArray],
    question: Question,
    target: Target,
    inputs: Inputs,
    v_of: Callable[[Mapping[str, Array], TargetActions], FloatArray] | None = None,
) -> FloatArray:
    """TD errors r + discount Q(s', pi) - Q(s, a) of the views' transitions under a method's Q.

    `v_of` is the method's own sum_k w_k Q(s, a_k), asked where there are many discrete actions.
    """
    dataset, rows = question.dataset, question.dataset.rows[inputs.transitions]
    result = np.empty(len(rows))
    step = 256 if dataset.pixel_keys else 8_192
    for first in range(0, len(rows), step):
        part = slice(first, first + step)
        here = q(
            dataset.observe(rows[part]), dataset.action_matrix(dataset.actions[inputs.transitions[part]])
        )
        ahead, chosen = dataset.observe(rows[part] + 1), target.actions.take(rows[part] + 1)
        if v_of is not None and chosen.exact and chosen.weights.shape[1] > FEW_ACTIONS:
            following = v_of(ahead, chosen)
        else:
            following = np.zeros(len(here))
            for k in range(chosen.weights.shape[1]):
                following += chosen.weights[:, k] * q(ahead, np.ascontiguousarray(chosen.actions[:, k]))
        following[inputs.terminated[part]] = 0.0
        result[part] = inputs.rewards[part] + question.discount * following - here
    return result


def _compact(dataset: Dataset, seed: int) -> Callable[[NDArray[Any]], FloatArray]:
    """Actions as short vectors: one-hot columns of many actions become a few random ones."""
    if not dataset.discrete or dataset.action_dim <= _ACTION_COLUMNS:
        return lambda actions: np.asarray(actions, dtype=np.float64)
    generator = np.random.default_rng([seed, salts.VIEWS, 3])
    directions = generator.standard_normal((dataset.action_dim, _ACTION_COLUMNS)) / math.sqrt(_ACTION_COLUMNS)
    return lambda actions: directions[np.asarray(actions).argmax(axis=-1)]


def _episodes_of(dataset: Dataset, rows: NDArray[np.int64] | slice) -> NDArray[np.int64]:
    label = np.repeat(np.arange(dataset.num_episodes), dataset.lengths + 1)
    return np.unique(label[rows])


def _pairs(states: FloatArray, actions: FloatArray) -> FloatArray:
    count, draws, _ = actions.shape
    return np.concatenate([np.repeat(states[:, None], draws, axis=1), actions], axis=2).reshape(
        count, draws, -1
    )


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


@dataclass(frozen=True, eq=False)
class StateCodes:
    """A standardised vector for every observation: the log's vectors, or coarse pictures of its frames.

    Attributes:
        dataset: the log.
        centre, scale: of the raw columns.
        projection: onto the directions of largest variance where there are many columns; None for few.
    """

    dataset: Dataset
    centre: FloatArray
    scale: FloatArray
    projection: FloatArray | None

    @classmethod
    def of(cls, dataset: Dataset, seed: int, most: int = 40, sample: int = 4_000) -> "StateCodes":
        generator = np.random.default_rng([seed, salts.VIEWS, 1])
        rows = np.sort(
            generator.choice(dataset.num_observations, min(sample, dataset.num_observations), False)
        )
        raw = _raw_codes(dataset.observe(rows), dataset.pixel_keys)
        centre, scale = raw.mean(axis=0), _spread(raw)
        if raw.shape[1] <= most:
            return cls(dataset, centre, scale, None)
        _, values, right = np.linalg.svd((raw - centre) / scale, full_matrices=False)
        return cls(
            dataset, centre, scale, right[:most].T / np.maximum(values[:most], 1e-12) * math.sqrt(len(raw))
        )

    def rows(self, rows: NDArray[np.int64]) -> FloatArray:
        """Codes of these observation rows."""
        step = 4_096 if self.dataset.pixel_keys else max(len(rows), 1)
        parts = [
            self.observations(self.dataset.observe(rows[i : i + step])) for i in range(0, len(rows), step)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.centre)))

    def observations(self, observations: Mapping[str, NDArray[Any]]) -> FloatArray:
        """Codes of any observations, by key."""
        raw = (_raw_codes(observations, self.dataset.pixel_keys) - self.centre) / self.scale
        return np.clip(raw if self.projection is None else raw @ self.projection, -8.0, 8.0)


def _raw_codes(observations: Mapping[str, NDArray[Any]], pixel_keys: tuple[str, ...]) -> FloatArray:
    """Vectors side by side; frames only where there are no vectors, as means over an 8 x 8 grid."""
    vectors = _vectors(observations, pixel_keys)
    if vectors is not None:
        return vectors
    return np.concatenate([_coarse(np.asarray(v)) for v in observations.values()], axis=1)


def _vectors(observations: Mapping[str, NDArray[Any]], pixel_keys: tuple[str, ...]) -> FloatArray | None:
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


@dataclass(frozen=True, eq=False)
class VectorsAt:
    """An array of vectors whose rows are made when they are asked for."""

    shape: tuple[int, int]
    read: Callable[[NDArray[np.int64]], Array]

    def __getitem__(self, rows: NDArray[np.int64]) -> Array:
        return self.read(rows)


def states_at(dataset: Dataset, codes: Callable[[NDArray[np.int64]], Array] | None) -> VectorsAt:
    """`states_of`, a few rows at a time; `codes` gives those of the representation, where it has any."""

    def read(rows: NDArray[np.int64]) -> Array:
        vectors = {k: v[rows] for k, v in dataset.observations.items() if k not in dataset.pixel_keys}
        seen = _vectors(vectors, ())
        return np.zeros((len(rows), 0)) if seen is None else seen

    own = read if codes is None or vectors_beside_frames(dataset) else codes
    return VectorsAt((dataset.num_observations, own(np.zeros(1, dtype=np.int64)).shape[1]), own)


def with_actions(states: VectorsAt, dataset: Dataset) -> VectorsAt:
    """State and logged action of each transition, side by side."""

    def read(transitions: NDArray[np.int64]) -> Array:
        actions = dataset.action_matrix(dataset.actions[transitions])
        return np.concatenate([states[dataset.rows[transitions]], actions], axis=1)

    return VectorsAt((len(dataset), states.shape[1] + dataset.action_dim), read)


def vectors_beside_frames(dataset: Dataset) -> bool:
    """Whether the log has vectors beside its frames."""
    return 0 < len(dataset.pixel_keys) < len(dataset.observations)


def states_of(dataset: Dataset, z: Array | None) -> Array:
    """A vector per observation row: the representation's own code `z`, or the log's vectors.

    Vectors beside the frames say more about the state than a code learned from the frames can.
    """
    if z is not None and not vectors_beside_frames(dataset):
        return z
    vectors = _vectors(dataset.observations, dataset.pixel_keys)
    return np.zeros((dataset.num_observations, 0)) if vectors is None else vectors
