"""What a policy is, what `load_policy` was told of it, and its actions on a dataset, computed once.

A policy is any object with one of

    act(observations) -> actions                                     deterministic
    sample(observations, generator) -> actions                       stochastic, continuous; with
    log_prob(observations, actions) -> (n,)                          for importance weights
    probabilities(observations) -> (n, num_actions)                  discrete, expectation taken exactly

and `reads`: the observation key or keys it looks at (None: everything, in the form in which the data came).
Methods never call a policy themselves. They read `TargetActions`: for every observation row k actions with
weights, so that phi(s, pi) = sum_k w_k phi(s, a_k) has one form for all three kinds.
"""

import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from types import FrameType
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array, Dataset
from bcrl.errors import BadInput, did_you_mean
from bcrl.policies.files import PolicyFile
from bcrl.policies.normaliser import Normaliser
from bcrl.policies.patience import PATIENCE, too_slow

Reads = str | tuple[str, ...] | None
Output = Literal["actions", "probabilities", "logits", "q_values"]
Layout = Literal["nhwc", "nchw"]


@runtime_checkable
class Policy(Protocol):
    """Deterministic: one action per observation."""

    @property
    def reads(self) -> Reads: ...

    def act(self, observations: Any) -> Array: ...  # noqa: ANN401 - one array or a dict, as the data came


@runtime_checkable
class StochasticPolicy(Protocol):
    """Continuous and random: actions drawn with a generator, and their log density."""

    @property
    def reads(self) -> Reads: ...

    def sample(self, observations: Any, generator: np.random.Generator) -> Array: ...  # noqa: ANN401

    def log_prob(self, observations: Any, actions: Array) -> NDArray[np.float64]: ...  # noqa: ANN401


@runtime_checkable
class DiscretePolicy(Protocol):
    """Discrete: the probability of every action."""

    @property
    def reads(self) -> Reads: ...

    def probabilities(self, observations: Any) -> NDArray[np.float64]: ...  # noqa: ANN401


@runtime_checkable
class ManyDraws(Protocol):
    """A stochastic policy that draws many actions a state at about the cost of one, shape (n, count, m)."""

    def sample_many(self, observations: Any, generator: np.random.Generator, count: int) -> Array: ...  # noqa: ANN401


AnyPolicy = Policy | StochasticPolicy | DiscretePolicy


@runtime_checkable
class UnresolvedPolicy(Protocol):
    """A bare function: only its answers show which kind it is, for it
    may return actions, scores or a distribution."""

    @property
    def reads(self) -> Reads: ...

    def resolve(self, observations: Any) -> AnyPolicy: ...  # noqa: ANN401


@runtime_checkable
class UnboundPolicy(Protocol):
    """One whose answers depend on the log's own columns and action names; `bind` gives the policy."""

    @property
    def reads(self) -> Reads: ...

    def bind(self, dataset: Dataset) -> AnyPolicy: ...


@dataclass(frozen=True, eq=False, kw_only=True)
class Options:
    """The keyword arguments of `load_policy`, checked; its docstring explains them."""

    reads: Reads = None
    stats: Normaliser | None = None
    num_actions: int | None = None
    stochastic: bool = False
    noise: float = 0.0
    output: Output | None = None
    output_name: str | None = None
    layout: Layout | None = None
    batched: bool = True
    threads: int = 1
    seconds: float = PATIENCE

    def __post_init__(self) -> None:
        known = {"output": ("actions", "probabilities", "logits", "q_values"), "layout": ("nhwc", "nchw")}
        for name, values in known.items():
            if getattr(self, name) not in (None, *values):
                raise BadInput(f"{name}={getattr(self, name)!r}; expected one of {', '.join(values)}.")
        if not 0.0 <= self.noise < float("inf"):
            raise BadInput(f"noise={self.noise}; expected a standard deviation from 0, in the action's unit.")
        if self.noise > 0.0 and self.stochastic:
            raise BadInput("noise= adds noise to a deterministic action; with stochastic=True leave it out.")
        if self.threads < 1:
            raise BadInput(f"threads={self.threads}; expected a whole number from 1.")
        if not self.seconds > 0.0:
            raise BadInput(f"seconds={self.seconds}; expected a number of seconds above 0.")
        if self.num_actions is not None and self.num_actions < 1:
            raise BadInput(f"num_actions={self.num_actions}; expected a whole number from 1.")

    def only(self, what: str, *allowed: str) -> "Options":
        """These options, refused when one was given that does nothing for this kind of policy."""
        for one in fields(self):
            general = one.name in ("reads", "num_actions", "seconds")
            if not general and one.name not in allowed and getattr(self, one.name) != one.default:
                raise BadInput(f"{one.name}= does nothing for {what}; leave it out.")
        return self

    def _changed(self) -> dict[str, Any]:
        """What shapes the policy, apart from defaults, as JSON can hold it; statistics by their digest."""
        values = {one.name: (getattr(self, one.name), one.default) for one in fields(self)}
        changed = {
            name: value
            for name, (value, default) in values.items()
            if value != default and name not in ("num_actions", "seconds")
        }
        if self.stats is not None:
            changed["stats"] = self.stats.digest
        return changed

    def source(self, file: PolicyFile | None = None) -> dict[str, Any]:
        """Where a policy came from, as the kinds' fields."""
        found: dict[str, Any] = {"loaded_with": self._changed(), "seconds": self.seconds}
        if file is not None:
            found |= {"path": file.path, "digest": file.digest}
        if self.stats is not None:
            found |= {"stats_path": self.stats.path, "stats_digest": self.stats.digest}
        return found


# Of more discrete actions than that, the expectation is taken by other means than one action at a time.
FEW_ACTIONS = 8


@dataclass(frozen=True, eq=False)
class TargetActions:
    """A policy's actions at n observations.

    Attributes:
        actions: shape (n, k, action_dim), float32.
        weights: shape (n, k), float64, rows summing to 1.
        exact: the k actions are all there are and the weights their probabilities; else k draws.
    """

    actions: NDArray[np.float32]
    weights: NDArray[np.float64]
    exact: bool = False

    def take(self, rows: NDArray[np.int64] | slice) -> "TargetActions":
        """The actions at these observations. A table that all rows share stays one table."""
        weights = self.weights[rows]
        if len(self.actions) and self.actions.strides[0] == 0:
            shared = np.broadcast_to(self.actions[0], (len(weights), *self.actions.shape[1:]))
            return TargetActions(shared, weights, self.exact)
        return TargetActions(self.actions[rows], weights, self.exact)

    @property
    def mean(self) -> NDArray[np.float64]:
        """sum_k w_k a_k, shape (n, action_dim); the probabilities where discrete actions are exact."""
        if self.exact:
            return self.weights
        mean = np.einsum("nk,nka->na", self.weights, self.actions, dtype=np.float64, casting="same_kind")
        return np.asarray(mean)

    def drawn(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Numbers of discrete actions, one for each of the uniform numbers (n, m): shape (n, m)."""
        if not self.exact:
            which = np.minimum((uniforms * self.weights.shape[1]).astype(np.int64), self.weights.shape[1] - 1)
            taken = self.actions[np.arange(len(uniforms))[:, None], which]
            return np.asarray(taken.argmax(axis=-1))
        cumulated = np.cumsum(self.weights, axis=1)
        whole = cumulated[:, -1:]
        levels = np.minimum(uniforms * whole, np.nextafter(whole, 0.0))
        # The first action whose cumulated probability is above the level, so that none of probability 0 is.
        codes = np.stack([(cumulated <= level[:, None]).sum(axis=1) for level in levels.T], axis=1)
        return np.asarray(np.minimum(codes, self.weights.shape[1] - 1))

    def spread_draws(self, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """`count` discrete actions a row, evenly spread over its probabilities from one random shift."""
        shift = generator.random((len(self.weights), 1))
        return self.drawn((np.arange(count) + shift) / count)

    def first(self, k: int) -> "TargetActions":
        """The first k draws, each with weight 1 / k; itself where the actions are exact or no more than k."""
        count, drawn = self.weights.shape
        if self.exact or drawn <= k:
            return self
        return TargetActions(np.ascontiguousarray(self.actions[:, :k]), np.full((count, k), 1.0 / k))


def view(dataset: Dataset, policy: AnyPolicy | UnresolvedPolicy, observations: Mapping[str, Array]) -> Any:  # noqa: ANN401
    """The part of the observations that a policy reads, in the form it expects."""
    reads = policy.reads
    if reads is None:
        return dataset.natural(observations)
    wanted = (reads,) if isinstance(reads, str) else reads
    missing = [key for key in wanted if key not in observations]
    if missing:
        raise BadInput(
            f"The policy reads {missing[0]!r}; the dataset has {sorted(observations)}. Is this policy for "
            "other data?"
        )
    return observations[reads] if isinstance(reads, str) else {key: observations[key] for key in wanted}


def resolve_policy(dataset: Dataset, policy: AnyPolicy | UnresolvedPolicy | UnboundPolicy) -> AnyPolicy:
    """The policy as one of the three kinds; a bare function is asked
    about the dataset's first two observations."""
    if isinstance(policy, UnboundPolicy):
        with answering(policy):
            return policy.bind(dataset)
    if not isinstance(policy, UnresolvedPolicy):
        return policy
    rows = np.arange(min(2, dataset.num_observations))
    with answering(policy):
        return policy.resolve(view(dataset, policy, dataset.observe(rows)))


@contextmanager
def answering(policy: AnyPolicy | UnresolvedPolicy | UnboundPolicy) -> Iterator[None]:
    """In which a policy may be asked: `BadInput` where it takes longer than its `seconds`.

    Outside the main thread, and where another alarm of this process comes sooner, nothing is limited.
    """
    seconds = float(getattr(policy, "seconds", PATIENCE))
    left = signal.getitimer(signal.ITIMER_REAL)[0] if hasattr(signal, "setitimer") else 0.0
    if threading.current_thread() is not threading.main_thread() or 0.0 < left <= seconds:
        yield
        return

    def ring(_: int, __: FrameType | None) -> None:
        raise too_slow(seconds)

    began, before = time.monotonic(), signal.signal(signal.SIGALRM, ring)
    # Again every second: a policy that catches all errors is still ended.
    other, interval = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        if other:  # someone else's alarm goes on
            passed = time.monotonic() - began
            signal.setitimer(signal.ITIMER_REAL, max(other - passed, 1e-3), interval)


def actions_at(
    dataset: Dataset,
    policy: AnyPolicy,
    observations: Mapping[str, Array],
    *,
    num_samples: int,
    generator: np.random.Generator,
) -> TargetActions:
    """The policy's actions at these observations, checked against the dataset's action space."""
    seen = view(dataset, policy, observations)
    count = len(next(iter(observations.values())))
    with answering(policy):
        if isinstance(policy, UnresolvedPolicy):
            policy = policy.resolve(seen)
        if isinstance(policy, DiscretePolicy):
            return _exact(dataset, np.asarray(policy.probabilities(seen), dtype=np.float64), count)
        if isinstance(policy, StochasticPolicy):
            drawn = (
                policy.sample_many(seen, generator, num_samples).swapaxes(0, 1)
                if isinstance(policy, ManyDraws)
                else (policy.sample(seen, generator) for _ in range(num_samples))
            )
            draws = [_matrix(dataset, one, count) for one in drawn]
            return TargetActions(np.stack(draws, axis=1), np.full((count, num_samples), 1.0 / num_samples))
        if isinstance(policy, Policy):
            return TargetActions(_matrix(dataset, policy.act(seen), count)[:, None], np.ones((count, 1)))
    raise BadInput(
        f"{type(policy).__name__} is no policy: it has none of act, sample, probabilities. "
        "Pass a callable through bcrl.load_policy, or give the object one of these methods."
    )


def target_actions(
    dataset: Dataset, policy: AnyPolicy, *, num_samples: int = 8, seed: int = 0, chunk: int = 4096
) -> TargetActions:
    """The policy's actions at every observation row of the dataset, computed once, in chunks.

    The random draws depend on the seed and on the row's chunk only, so a policy's noise is the same for every
    method.
    """
    total = dataset.num_observations
    _require_few_actions(dataset.num_actions, total)
    actions, weights = np.zeros(0, dtype=np.float32), np.zeros(0)
    for number, first in enumerate(range(0, total, chunk)):
        generator = np.random.default_rng([seed, number])
        rows = np.arange(first, min(first + chunk, total))
        part = actions_at(
            dataset, policy, dataset.observe(rows), num_samples=num_samples, generator=generator
        )
        if first == 0:
            weights = np.empty((total, part.weights.shape[1]))
            # One table of one-hot rows serves all observations.
            shape = (total, *part.actions.shape[1:])
            actions = np.broadcast_to(part.actions[:1], shape) if part.exact else np.empty(shape, np.float32)
        weights[first : first + chunk] = part.weights
        if not part.exact:
            actions[first : first + chunk] = part.actions
    return TargetActions(actions, weights, part.exact)


# An action is a row of zeros and a one: as float32, so many cells are a GB, and a table of so many actions a
# quarter of one.
_MOST_CELLS, _MOST_ACTIONS = 2**28, 2**13


def _require_few_actions(actions: int | None, observations: int) -> None:
    if actions is not None and (actions > _MOST_ACTIONS or actions * observations > _MOST_CELLS):
        raise BadInput(
            f"{actions} discrete actions at {observations} observations are too many: each action has a "
            "column of its own. Number the actions that occur from 0 (in log and policy), or group rare ones."
        )


def _exact(dataset: Dataset, probabilities: NDArray[np.float64], count: int) -> TargetActions:
    if dataset.num_actions is None:
        raise BadInput(
            "The policy gives action probabilities, but the logged actions are continuous. Is this policy "
            "for other data?"
        )
    expected = (count, dataset.num_actions)
    if probabilities.shape != expected:
        raise BadInput(
            f"policy.probabilities returned shape {probabilities.shape}; the dataset needs {expected}. "
            "Is this policy for another task?"
        )
    off = np.abs(probabilities.sum(axis=1) - 1.0)
    if not np.isfinite(probabilities).all() or probabilities.min() < -1e-9 or off.max() > 1e-4:
        row = int(np.argmax(np.where(np.isfinite(off), off, np.inf)))
        raise BadInput(
            f"policy.probabilities is no distribution at row {row}: {probabilities[row]}; rows must be >= 0 "
            "and sum to 1."
        )
    _require_few_actions(dataset.num_actions, count)
    eye = np.eye(dataset.num_actions, dtype=np.float32)
    return TargetActions(
        np.broadcast_to(eye, (count, *eye.shape)),
        probabilities / probabilities.sum(axis=1, keepdims=True),
        exact=True,
    )


def by_label(dataset: Dataset, actions: Array) -> Array:
    """Names of actions as the log's numbers."""
    if dataset.action_labels is None or actions.dtype.kind not in "OUST":
        return actions
    number = {label: code for code, label in enumerate(dataset.action_labels)}
    unknown = sorted({str(action) for action in actions.ravel().tolist() if action not in number})
    if unknown:
        raise BadInput(
            f"The policy takes the action {unknown[0]!r}, which the log never took. "
            f"{did_you_mean(unknown[0], dataset.action_labels)}"
        )
    flat = [number[action] for action in actions.ravel().tolist()]
    return np.asarray(flat, dtype=np.int64).reshape(actions.shape)


def _matrix(dataset: Dataset, actions: Any, count: int) -> NDArray[np.float32]:  # noqa: ANN401
    actions = by_label(dataset, np.asarray(actions))
    expected = (count, *dataset.actions.shape[1:])
    if actions.shape != expected:
        scores = dataset.num_actions is not None and actions.shape == (count, dataset.num_actions)
        raise BadInput(
            f"The policy returned actions of shape {actions.shape}; the dataset's actions have shape "
            f"{expected}. "
            + (
                "If these are scores of the actions, load it with output='logits', 'probabilities' or "
                "'q_values'."
                if scores
                else "Is this policy for another task?"
            )
        )
    if not np.issubdtype(actions.dtype, np.number):
        raise BadInput(f"The policy returned actions of type {actions.dtype}; expected numbers.")
    if not np.isfinite(actions).all():
        row = int(np.flatnonzero(~np.isfinite(actions.reshape(count, -1)).all(axis=1))[0])
        raise BadInput(
            f"The policy returned {actions[row]} for observation {row} of a batch; expected finite numbers."
        )
    if dataset.num_actions is not None:
        whole = np.issubdtype(actions.dtype, np.integer) or bool((actions == np.round(actions)).all())
        if not whole or actions.min() < 0 or actions.max() >= dataset.num_actions:
            raise BadInput(
                f"The policy returned discrete actions in [{actions.min()}, {actions.max()}]; "
                f"expected whole numbers from 0 to {dataset.num_actions - 1}."
            )
    return dataset.action_matrix(actions)
