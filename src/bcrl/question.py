"""The question that every method answers, with the policies' own answers about the log, asked once.

    question = Question.of(dataset, {"new": policy}, discount=0.99)
    estimates = method.estimate(question, run)          # {policy name: Estimate}

A method reads `question.targets[name]`: the policy's actions at every row of the log and at the start states,
and the log probability of the logged actions. It asks no policy itself, except about states that are not in
the log.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl import salts
from bcrl.data.build.inputs import numbers
from bcrl.data.dataset import Array, Dataset
from bcrl.errors import BadInput
from bcrl.policies.policy import (
    AnyPolicy,
    DiscretePolicy,
    StochasticPolicy,
    TargetActions,
    actions_at,
    answering,
    target_actions,
    view,
)


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
    if isinstance(observations, Mapping):
        given: Array | Mapping[str, Array] = {
            key: numbers(f"starts[{key!r}]", value) for key, value in observations.items()
        }
    else:
        given = numbers(f"starts[{next(iter(dataset.observations))!r}]", observations)
    keyed = dataset.keyed(given)
    for key, value in keyed.items():
        expected = dataset.observe(np.zeros(1, dtype=np.int64))[key].shape[1:]
        if value.shape[1:] != expected or len(value) == 0:
            raise BadInput(
                f"starts[{key!r}] has shape {value.shape}; expected (n, {', '.join(map(str, expected))}) "
                "with n >= 1."
            )
        if np.issubdtype(value.dtype, np.floating) and not np.isfinite(value).all():
            raise BadInput(f"starts[{key!r}] holds NaN or infinity; expected finite numbers.")
    return Starts(keyed, None)


# No log shows what happens after so many steps, and some methods take a step of theirs for each.
LONGEST_HORIZON = 50_000
# Actions drawn from a stochastic policy of continuous actions: at every row of the log, and at a state whose
# V is asked for.
ROW_DRAWS, STATE_DRAWS = 8, 16
_CHUNK = 4096


def actions_for_value(
    template: Dataset, policy: AnyPolicy, observations: Mapping[str, Array], seed: int
) -> TargetActions:
    """The policy's actions at states whose V is asked for: the start states, or any others."""
    generator = np.random.default_rng([seed, salts.START_ACTIONS])
    return actions_at(template, policy, observations, num_samples=STATE_DRAWS, generator=generator)


@dataclass(frozen=True, eq=False)
class Target:
    """One policy of a question and what it says about the log.

    Attributes:
        policy: the policy itself, for states that are not in the log.
        dataset: the log.
        starts: where its value is asked for.
        seed: draws the actions of a stochastic policy.
    """

    policy: AnyPolicy
    dataset: Dataset
    starts: Starts
    seed: int

    @cached_property
    def actions(self) -> TargetActions:
        """Its actions at every observation row of the log."""
        return target_actions(self.dataset, self.policy, num_samples=ROW_DRAWS, seed=self.seed)

    @cached_property
    def start_actions(self) -> TargetActions:
        """Its actions at the start states."""
        return actions_for_value(self.dataset, self.policy, self.starts.observations, self.seed)

    @cached_property
    def log_prob(self) -> NDArray[np.float64]:
        """Log probability (density) that it gives to every logged action, shape (N,); -inf where it never
        takes it.
        """
        count = len(self.dataset)
        parts = [
            self.log_prob_at(np.arange(first, min(first + _CHUNK, count)))
            for first in range(0, count, _CHUNK)
        ]
        result = np.concatenate(parts)
        if result.shape != (count,) or np.isnan(result).any() or (result == np.inf).any():
            raise BadInput(
                f"The policy's log_prob gave shape {result.shape} with {int(np.isnan(result).sum())} NaN; "
                f"expected {(count,)} numbers below infinity."
            )
        return result

    def log_prob_at(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """The same of these transitions' actions alone."""
        seen = view(self.dataset, self.policy, self.dataset.observe(self.dataset.rows[index]))
        actions = self.dataset.actions[index]
        with answering(self.policy):
            return self._log_prob_of(seen, actions)

    def _log_prob_of(self, seen: Any, actions: Array) -> NDArray[np.float64]:  # noqa: ANN401 - as it reads
        count = len(actions)
        if isinstance(self.policy, DiscretePolicy):
            probability = np.asarray(self.policy.probabilities(seen), dtype=np.float64)
            taken = probability[np.arange(count), actions.reshape(-1).astype(np.int64)]
            return np.log(taken, out=np.full(count, -np.inf), where=taken > 0.0)
        if isinstance(self.policy, StochasticPolicy):
            return np.asarray(self.policy.log_prob(seen, actions), dtype=np.float64)
        chosen = np.asarray(self.policy.act(seen)).reshape(count)
        return np.where(chosen == actions.reshape(-1), 0.0, -np.inf)

    @cached_property
    def digest(self) -> str:
        """A hash of its actions on the log and at the starts: what a policy is to a method, whatever it is
        called.
        """
        content = hashlib.sha256()
        for part in (self.actions, self.start_actions):
            for array in (part.actions, part.weights):
                content.update(repr((array.shape, array.dtype.str)).encode())
                # One-hot actions are one table for all rows; a copy of it for each would fill the memory.
                content.update(np.ascontiguousarray(array if array.strides[0] else array[:1]).data)
        return content.hexdigest()


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of a method.

    Attributes:
        dataset: the log.
        targets: the policies to be valued, by name.
        starts: the states that the value is the mean over.
        discount: in [0, 1); 1 with a horizon.
        horizon: number of steps that the value covers; None for the whole future.
        level: what every interval promises, e.g. 0.95.
        seed: the one seed that all randomness comes from.
    """

    dataset: Dataset
    targets: Mapping[str, Target]
    starts: Starts
    discount: float
    horizon: int | None
    level: float
    seed: int

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        policies: Mapping[str, AnyPolicy],
        *,
        discount: float,
        horizon: int | None = None,
        starts: Starts | Array | Mapping[str, Array] | None = None,
        level: float = 0.95,
        seed: int = 0,
    ) -> "Question":
        """The question about these policies; without `starts`, from each episode's first observation."""
        check_numbers(discount, horizon, level, seed)
        if not policies:
            raise BadInput("No policy to evaluate; pass at least one, e.g. {'new': policy}.")
        begin = starts if isinstance(starts, Starts) else starts_of(dataset, starts)
        return cls(dataset, {}, begin, discount, horizon, level, seed).about(policies)

    def about(self, policies: Mapping[str, AnyPolicy]) -> "Question":
        """The same question about other policies."""
        targets = {
            name: Target(policy, self.dataset, self.starts, self.seed) for name, policy in policies.items()
        }
        return replace(self, targets=targets)

    @property
    def num_units(self) -> int:
        """Independent units (clusters, else episodes) in the log."""
        return self.dataset.num_units


def check_numbers(discount: Any, horizon: Any, level: Any, seed: Any = 0) -> None:  # noqa: ANN401 - from a user
    """Refuse what is no question."""
    if isinstance(discount, bool) or not isinstance(discount, int | float) or not 0.0 <= discount <= 1.0:
        raise BadInput(f"discount is {discount!r}; expected a number in [0, 1), e.g. 0.99.")
    if discount == 1.0 and horizon is None:
        raise BadInput(
            "discount 1 has no finite value without an end; pass horizon=H, or a discount below 1."
        )
    if horizon is not None and (not _whole(horizon) or not 1 <= horizon <= LONGEST_HORIZON):
        raise BadInput(
            f"horizon is {horizon!r}; expected a whole number of steps from 1 to {LONGEST_HORIZON}. "
            "Leave it out for the whole future."
        )
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0.0 < level < 1.0:
        raise BadInput(f"level is {level!r}; expected a number between 0 and 1, e.g. 0.95.")
    if not (_whole(seed) or isinstance(seed, np.integer)) or not 0 <= seed < 2**63:
        raise BadInput(f"seed is {seed!r}; expected a whole number from 0 to 2**63 - 1.")


def _whole(number: Any) -> bool:  # noqa: ANN401
    return isinstance(number, int) and not isinstance(number, bool)
