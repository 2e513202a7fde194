"""Logged decisions, as every method reads them.

Episodes lie one after another. An episode of T transitions holds T + 1 observations, T actions, T rewards:

    # transition        :   0    1    2    |   3    4     (two episodes: T = 3 and T = 2)
    # observations row  :   s0   s1   s2   s3  |  s4   s5   s6      N + E rows; s3, s6 are final
    # actions, rewards  :   a0   a1   a2   |   a3   a4              N rows
    # terminated        :   0    0    1    |   0    0               the world ended: no bootstrap
    # truncated         :   0    0    0    |   0    1               we stopped looking: bootstrap from s6
    # offsets           :   0, 3, 5                                 first transition of each episode, then N

Transition i of episode e reads observation row i + e and next observation row i + e + 1, so no observation is
stored twice. Pixel keys (uint8, height x width x channels) hold single frames; stacks are views made when a
batch is taken.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bcrl.data.frames import from_files, in_files, select_rows, stack_frames
from bcrl.data.layout import Layout
from bcrl.errors import BadInput

Array = NDArray[Any]
ObservationsLike = ArrayLike | Mapping[str, ArrayLike]
Ends = Literal["terminated", "truncated", "drop"]  # what a user says about ends that nobody marked
_AT_ONCE = 1 << 22  # numbers that a pass over a column reads
LABELS = ("cluster", "behaviour", "cohort")  # what an episode carries beside its columns, where it is known


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Episodes of logged decisions; see the drawing above for the layout.

    Attributes:
        observations: every observation of every episode, by key, each of shape (N + E, ...).
        actions: logged actions, (N,) integers when discrete, (N, ...) floats when continuous.
        rewards: shape (N,), float64.
        terminated: the world ended after this transition, shape (N,).
        truncated: the record stops after this transition, shape (N,).
        offsets: first transition of each episode and N at the end, shape (E + 1,).
        log_prob: log probability (density) of the logged action under the logging policy, shape (N,), if
            known.
        cluster: what is independent (a patient, a visitor, a robot), one label per episode; None = each
            episode.
        behaviour: which logging policy made the episode (a name, a version), one label per episode; None =
            one made all.
        stack: number of frames that pixel keys are stacked to at batch time.
        ordered: False when the transitions have no known order (`from_transitions`).
        single: the observations came as one bare array; policies are then called with that array, not a dict.
        num_actions: number of discrete actions; None for continuous actions.
        given_starts: start observations that came with unordered transitions, by key.
        dropped: transitions left out on the way in because their next observation is unknown.
        dropped_reward: sum of |reward| that went with them, where it is more than that of usual steps.
        cohort: which group to look at apart the episode belongs to, one label per episode; None = no groups.
        action_labels: names of discrete actions, where the log has names.
        table: how the columns of a table became the observations; None for data that were no table.
        notes: what the reader guessed or filled in.
    """

    observations: Mapping[str, Array]
    actions: Array
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    offsets: NDArray[np.int64]
    log_prob: NDArray[np.float64] | None = None
    cluster: Array | None = None
    behaviour: Array | None = None
    stack: int = 1
    ordered: bool = True
    single: bool = False
    num_actions: int | None = None
    given_starts: Mapping[str, Array] | None = None
    dropped: int = 0
    dropped_reward: float = 0.0
    cohort: Array | None = None
    action_labels: tuple[str, ...] | None = None
    table: Layout | None = None
    notes: tuple[str, ...] = ()
    source: str = field(default="arrays", compare=False)

    @classmethod
    def from_arrays(
        cls,
        observations: ObservationsLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        terminated: ArrayLike,
        truncated: ArrayLike | None = None,
        next_observations: ObservationsLike | None = None,
        log_prob: ArrayLike | None = None,
        cluster: ArrayLike | None = None,
        stack: int = 1,
        num_actions: int | None = None,
        episode: ArrayLike | None = None,
        behaviour: ArrayLike | None = None,
        cohort: ArrayLike | None = None,
        ends: Ends | None = None,
    ) -> "Dataset":
        """Episodes laid end to end, one row per transition.

        Args:
            observations: one array (N, ...), or a dict of them; uint8 images as single frames, height x width
                x channels.
            actions: (N, ...) floats, or (N,) whole numbers when discrete.
            rewards: shape (N,).
            terminated: the world ended after this row (no value beyond it), shape (N,).
            truncated: the record stops after this row (a time limit, a cut), shape (N,).
            next_observations: like `observations`; without them the last row of a truncated episode is
                dropped.
            log_prob: log probability of the logged action under the logging policy, shape (N,).
            cluster: what is independent (patient, visitor, robot), one label per row or per episode.
            stack: frames to stack when a batch is taken.
            num_actions: number of discrete actions; None takes the largest one seen plus one.
            episode: a label per row; a new label begins a new episode.
            behaviour: which logging policy decided (a name, a version), one label per row or per episode.
            cohort: which group to look at apart (a ward, an age group), one label per row or per episode.
            ends: what the last row of an episode is that is marked neither terminated nor truncated: the
                world's end ("terminated"), the record's ("truncated"), or a row to leave out ("drop"). None
                refuses such ends where they carry a reward.
        """
        from bcrl.data.build.arrays import LoggedArrays, from_arrays

        return from_arrays(
            LoggedArrays(
                observations=observations,
                actions=actions,
                rewards=rewards,
                terminated=terminated,
                truncated=truncated,
                next_observations=next_observations,
                log_prob=log_prob,
                cluster=cluster,
                stack=stack,
                num_actions=num_actions,
                episode=episode,
                behaviour=behaviour,
                cohort=cohort,
                ends=ends,
            )
        )

    @classmethod
    def from_transitions(
        cls,
        observations: ObservationsLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        next_observations: ObservationsLike,
        terminated: ArrayLike,
        start_observations: ObservationsLike | None = None,
        log_prob: ArrayLike | None = None,
        cluster: ArrayLike | None = None,
        num_actions: int | None = None,
    ) -> "Dataset":
        """Transitions in no order; methods that read sequences refuse them. Arguments as in `from_arrays`.

        Args:
            start_observations: where episodes begin; without them, pass `starts` to `evaluate`.
        """
        from bcrl.data.build.arrays import LoggedArrays, from_transitions

        return from_transitions(
            LoggedArrays(
                observations=observations,
                actions=actions,
                rewards=rewards,
                next_observations=next_observations,
                terminated=terminated,
                start_observations=start_observations,
                log_prob=log_prob,
                cluster=cluster,
                num_actions=num_actions,
                source="transitions",
            )
        )

    @classmethod
    def from_episodes(
        cls, episodes: Iterable[Mapping[str, Any]], stack: int = 1, num_actions: int | None = None
    ) -> "Dataset":
        """Episodes as dicts: T + 1 `observations`, T `actions`, T `rewards`, `terminated`, and optionally
        `truncated`, `log_prob`, and one label each: `cluster`, `behaviour`, `cohort`."""
        from bcrl.data.build.episodes import from_episodes

        return from_episodes(episodes, stack, num_actions)

    def __getstate__(self) -> dict[str, Any]:
        """For another process: memory-mapped arrays go as the places where they lie, not as their bytes."""
        return {f.name: in_files(getattr(self, f.name)) for f in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({name: from_files(value) for name, value in state.items()})

    def __len__(self) -> int:
        return len(self.rewards)

    def __repr__(self) -> str:
        seen = ", ".join(f"{key} {tuple(v.shape[1:])} {v.dtype}" for key, v in self.observations.items())
        kind = f"actions {tuple(self.actions.shape[1:])}"
        if self.discrete:
            names = f" ({', '.join(self.action_labels)})" if self.action_labels else ""
            kind = f"{self.num_actions} actions{names}"
        rows = f"{self.num_episodes:,} episodes, {len(self):,} transitions"
        return f"Dataset from {self.source}: {rows}; {seen}; {kind}"

    @property
    def num_episodes(self) -> int:
        return len(self.offsets) - 1

    @property
    def num_observations(self) -> int:
        """Observation rows, N + E."""
        return len(self) + self.num_episodes

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Transitions per episode, shape (E,)."""
        return np.diff(self.offsets)

    @cached_property
    def episode_of(self) -> NDArray[np.int64]:
        """Episode of each transition, shape (N,)."""
        return np.repeat(np.arange(self.num_episodes), self.lengths)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Observation row of each transition's s, shape (N,); its s' is one row further."""
        return np.arange(len(self)) + self.episode_of

    @cached_property
    def first_row(self) -> NDArray[np.int64]:
        """First observation row of the episode that each observation row belongs to, shape (N + E,)."""
        starts = self.offsets[:-1] + np.arange(self.num_episodes)
        return np.repeat(starts, self.lengths + 1)

    def episodes_at(self, transitions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Episode of these transitions, as `episode_of` has it for all."""
        return np.searchsorted(self.offsets, transitions, side="right") - 1

    @property
    def start_rows(self) -> NDArray[np.int64]:
        """Observation row of each episode's first observation, shape (E,)."""
        return self.offsets[:-1] + np.arange(self.num_episodes)

    @cached_property
    def units(self) -> NDArray[np.int64]:
        """Independent unit of each episode (its cluster, else itself), numbered from 0, shape (E,)."""
        if self.cluster is None:
            return np.arange(self.num_episodes)
        return np.unique(self.cluster, return_inverse=True)[1].astype(np.int64)

    @cached_property
    def num_units(self) -> int:
        """Number of independent units."""
        return int(self.units.max()) + 1

    def observation_rows(self, episodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Observation rows of these episodes, T + 1 each, one episode after another."""
        return _spans(self.offsets[episodes] + episodes, self.lengths[episodes] + 1)

    def episode_slices(self, episode: int) -> tuple[slice, slice]:
        """Where one episode lies: its transitions, and its observation rows."""
        first, end = int(self.offsets[episode]), int(self.offsets[episode + 1])
        return slice(first, end), slice(first + episode, end + episode + 1)

    @property
    def discrete(self) -> bool:
        return self.num_actions is not None

    @property
    def action_dim(self) -> int:
        """Width of an action as methods see it: one-hot when discrete, flattened when continuous."""
        return self.num_actions if self.num_actions is not None else int(np.prod(self.actions.shape[1:]))

    def action_name(self, number: int) -> str:
        """A discrete action as people call it."""
        known = self.action_labels is not None and number < len(self.action_labels)
        return self.action_labels[number] if known and self.action_labels else str(number)

    @property
    def pixel_keys(self) -> tuple[str, ...]:
        return tuple(key for key, value in self.observations.items() if is_pixels(value))

    def observe(self, rows: NDArray[np.int64]) -> dict[str, Array]:
        """Observations at these rows, pixel keys stacked to (n, H, W, C * stack), oldest frame first.

        At an episode's start the first frame stands in for the frames before it.
        """
        return {key: self._take(key, np.asarray(rows, dtype=np.int64)) for key in self.observations}

    def _take(self, key: str, rows: NDArray[np.int64]) -> Array:
        source = self.observations[key]
        if self.stack == 1 or not is_pixels(source):
            return np.asarray(source[rows])
        return stack_frames(source, self.frame_rows(rows, self.stack))

    def frame_rows(self, rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """Rows of the `count` frames up to each row, oldest first, shape (n,
        count), never before the episode's first."""
        back = np.arange(count - 1, -1, -1)
        return np.asarray(np.maximum(rows[:, None] - back, self.first_row[rows][:, None]), dtype=np.int64)

    def natural(self, observations: Mapping[str, Array]) -> Array | dict[str, Array]:
        """Observations in the form in which the user gave them: one array, or a dict."""
        return next(iter(observations.values())) if self.single else dict(observations)

    def keyed(self, observations: Array | Mapping[str, Array]) -> dict[str, Array]:
        """Observations by key, whichever form the user gave them in."""
        if isinstance(observations, Mapping):
            if set(observations) == {""} and len(self.observations) == 1:
                return {next(iter(self.observations)): observations[""]}
            missing = set(self.observations) - set(observations)
            if missing:
                raise BadInput(
                    f"Observations lack the key {sorted(missing)[0]!r}; got {sorted(observations)}, "
                    f"the dataset has {sorted(self.observations)}."
                )
            return {key: np.asarray(observations[key]) for key in self.observations}
        if len(self.observations) != 1:
            raise BadInput(
                f"Got one array of observations; this dataset has the keys {sorted(self.observations)}. Pass "
                "a dict."
            )
        return {next(iter(self.observations)): np.asarray(observations)}

    def action_matrix(self, actions: Array) -> NDArray[np.float32]:
        """Actions as float32 rows (n, action_dim): one-hot when discrete, flattened when continuous."""
        actions = np.asarray(actions)
        if self.num_actions is None:
            return np.ascontiguousarray(actions.reshape(len(actions), -1), dtype=np.float32)
        matrix = np.zeros((len(actions), self.num_actions), dtype=np.float32)
        matrix[np.arange(len(actions)), actions.reshape(len(actions)).astype(np.int64)] = 1.0
        return matrix

    def start_observations(self) -> dict[str, Array]:
        """Where episodes begin: given with unordered transitions, else
        the first observation of each episode."""
        if self.given_starts is not None:
            return dict(self.given_starts)
        if not self.ordered:
            raise BadInput(
                "These transitions have no order, so their start states are unknown. "
                "Pass start_observations to Dataset.from_transitions, or starts= to evaluate."
            )
        return self.observe(self.start_rows)

    def require_order(self, method: str) -> None:
        """Refuse unordered transitions for a method that reads sequences."""
        if not self.ordered:
            raise BadInput(
                f"{method} reads whole episodes, and this dataset holds unordered transitions. Use "
                "Dataset.from_arrays with episode ends, or a method that needs single transitions (LSPE, "
                "FQE, FlowDICE)."
            )

    def template(self) -> "Dataset":
        """The same kind of data with no rows: what a value function
        needs to read observations and actions."""
        empty = self.select(np.zeros(0, dtype=np.int64))
        return replace(empty, cluster=None, behaviour=None, cohort=None, given_starts=None)

    def select(self, episodes: NDArray[np.int64]) -> "Dataset":
        """The dataset of these episodes, in this order.

        Frames stay where they are; everything else is copied.
        """
        episodes = np.asarray(episodes, dtype=np.int64)
        lengths = self.lengths[episodes]
        transitions = _spans(self.offsets[episodes], lengths)
        rows = self.observation_rows(episodes)
        return replace(
            self,
            observations={
                key: select_rows(value, rows) if len(rows) and is_pixels(value) else np.asarray(value[rows])
                for key, value in self.observations.items()
            },
            actions=np.asarray(self.actions[transitions]),
            rewards=np.asarray(self.rewards[transitions]),
            terminated=np.asarray(self.terminated[transitions]),
            truncated=np.asarray(self.truncated[transitions]),
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            log_prob=None if self.log_prob is None else np.asarray(self.log_prob[transitions]),
            cluster=None if self.cluster is None else np.asarray(self.cluster)[episodes],
            behaviour=None if self.behaviour is None else np.asarray(self.behaviour)[episodes],
            cohort=None if self.cohort is None else np.asarray(self.cohort)[episodes],
            dropped=0,
            dropped_reward=0.0,
        )


def is_pixels(array: Array) -> bool:
    """Whether an observation array holds images: uint8 rows of height x width x channels."""
    return array.dtype == np.uint8 and array.ndim == 4


def centred(values: Array) -> NDArray[np.float64]:
    """Rows around the first one. Whole numbers keep their differences, however large they are."""
    if values.dtype.kind not in "iu" or len(values) == 0:
        return np.asarray(values, dtype=np.float64)
    # The wide floats of most processors hold every int64; elsewhere this is no worse than float64.
    return np.asarray(values.astype(np.longdouble) - values[0].astype(np.longdouble), dtype=np.float64)


def all_finite(numbers: Array) -> bool:
    """Whether there is no NaN and no infinity among floats, from one sum; huge numbers may be doubted."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(numbers.sum(dtype=np.float64)))


def pieces(array: Array) -> Iterator[slice]:
    """All rows of an array in turn: at most a quarter of a million, of at most four million numbers."""
    step = max(1, _AT_ONCE // max(int(np.prod(array.shape[1:], dtype=np.int64)), 16))
    for first in range(0, len(array), step):
        yield slice(first, min(first + step, len(array)))


def deviation(column: Array) -> NDArray[np.float64]:
    """Standard deviation of each column (n, k), some rows at a time."""
    count, mean, squares = 0, np.zeros(column.shape[1:]), np.zeros(column.shape[1:])
    for piece in pieces(column):
        values = centred(np.concatenate([column[:1], column[piece]]))[1:]
        more, own = len(values), values.mean(axis=0)
        squares += np.square(values - own).sum(axis=0)
        squares += np.square(own - mean) * (count * more / (count + more))
        mean += (own - mean) * (more / (count + more))
        count += more
    return np.asarray(np.sqrt(squares / max(count, 1)))


def first_bad(array: Array) -> int | None:
    """The first row that holds NaN or infinity; None when all is finite. Reads in chunks."""
    if array.dtype.kind != "f":
        return None
    for first in range(0, len(array), 65536):
        chunk = np.asarray(array[first : first + 65536])
        if all_finite(chunk):
            continue
        bad = ~np.isfinite(chunk.reshape(len(chunk), -1)).all(axis=1)
        if bad.any():
            return first + int(np.argmax(bad))
    return None


def _spans(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The integers starts[j] .. starts[j] + lengths[j] - 1 for every j, one after another."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.asarray(np.arange(total) + np.repeat(starts - (ends - lengths), lengths), dtype=np.int64)
