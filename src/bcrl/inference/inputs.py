"""What views and audits read: a log and one policy's actions on it, as vectors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcrl import salts
from bcrl.data.dataset import Array, Dataset
from bcrl.data.select import some_episodes
from bcrl.estimate import FloatArray
from bcrl.inference.codes import Codes, drawn, vectors_of
from bcrl.policies.policy import FEW_ACTIONS, TargetActions
from bcrl.question import Question, Target

ROWS = 12_000  # transitions that the views look at


@dataclass(frozen=True, eq=False)
class Inputs:
    """What the views read: transitions of whole episodes as standardised vectors.

    Attributes:
        codes: how the vectors were made, for other states.
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

    codes: Codes
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
    here_rows = dataset.rows[transitions]
    matrix = dataset.action_matrix(dataset.actions[transitions])
    codes = Codes.of(dataset, matrix, seed)
    states, next_states = codes.rows(dataset, here_rows), codes.rows(dataset, here_rows + 1)
    actions = codes.actions(matrix)
    own_actions = drawn(target.actions.take(here_rows), generator)
    next_actions = drawn(target.actions.take(here_rows + 1), generator)
    start_actions = drawn(target.start_actions, generator)
    start_states = codes.states(question.starts.observations)
    limit = np.linspace(0, len(start_states) - 1, min(len(start_states), 2_000)).astype(np.int64)
    episode = dataset.episode_of[transitions]
    same = np.append(episode[1:] == episode[:-1], False)
    terminated = np.asarray(dataset.terminated[transitions])
    after = np.concatenate([next_states, np.vstack([actions[1:], actions[:1]])], axis=1)
    first = np.flatnonzero(np.append(True, episode[1:] != episode[:-1]))
    return Inputs(
        codes=codes,
        transitions=transitions,
        here=np.concatenate([states, actions], axis=1),
        acting=codes.pairs(states, own_actions.actions),
        acting_weights=own_actions.weights,
        following=codes.pairs(next_states, next_actions.actions),
        following_weights=next_actions.weights,
        after=after,
        has_after=same,
        starts=codes.pairs(start_states[limit], start_actions.actions[limit]),
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


def _episodes_of(dataset: Dataset, rows: NDArray[np.int64] | slice) -> NDArray[np.int64]:
    label = np.repeat(np.arange(dataset.num_episodes), dataset.lengths + 1)
    return np.unique(label[rows])


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
        seen = vectors_of(vectors, ())
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
    vectors = vectors_of(dataset.observations, dataset.pixel_keys)
    return np.zeros((dataset.num_observations, 0)) if vectors is None else vectors
