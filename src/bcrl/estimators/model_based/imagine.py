"""Imagined rollouts: the policy acts in the model, and what the model pays is added up.

    V(s0) = E sum_t gamma^t  (chance of still going on at t)  r_hat(s_t, a_t)

The first action is chosen at the real observation; later ones at what the model shows. The reward of the step on which the
world ends counts (policy_eval drops it). Chances of going on are multiplied, not drawn, which costs no variance.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bcrl.data.dataset import Array, Dataset
from bcrl.estimate import FloatArray
from bcrl.policies.policy import AnyPolicy, actions_at

# What is left of the future when an endless rollout is cut.
TAIL = 1e-3


class Simulator(Protocol):
    """A learned model that can be stepped."""

    @property
    def keys(self) -> tuple[str, ...]: ...

    def begin(self, observations: Mapping[str, Array], generator: torch.Generator) -> Any: ...  # noqa: ANN401

    def show(self, state: Any, keys: tuple[str, ...], template: Dataset) -> dict[str, Array]: ...  # noqa: ANN401

    def advance(
        self,
        state: Any,  # noqa: ANN401
        actions: Tensor,
        generator: torch.Generator,
    ) -> tuple[Any, Tensor, Tensor]: ...

    def code(self, state: Any) -> Tensor: ...  # noqa: ANN401


# States and actions met in imagination that are kept for a look at where it went.
MET = 2000


@dataclass(frozen=True, eq=False)
class Rollouts:
    """Returns of each start and sample, (n0, samples), the mean imagined reward by step, and some (states, actions) met."""

    returns: FloatArray
    reward_by_step: FloatArray
    met: tuple[Array, Array]

    @property
    def per_start(self) -> FloatArray:
        return np.asarray(self.returns.mean(axis=1))


Chooser = Callable[[Any, dict[str, Array]], Tensor]


def steps_for(discount: float, horizon: int | None) -> int:
    """Steps of a rollout: the horizon, or until a thousandth of the future is left."""
    if horizon is not None:
        return horizon
    return 1 if discount == 0.0 else max(1, math.ceil(math.log(TAIL) / math.log(discount)))


def rollouts(
    simulator: Simulator,
    template: Dataset,
    choose: Chooser,
    shown_keys: tuple[str, ...],
    observations: Mapping[str, Array],
    *,
    discount: float,
    horizon: int | None,
    samples: int,
    generator: torch.Generator,
    chunk: int = 4096,
) -> Rollouts:
    """Let a policy act from each observation, `samples` times.

    Args:
        simulator: the model.
        template: the kind of data.
        choose: (model state, what the policy sees) -> action matrix (n, A).
        shown_keys: keys that the policy reads in imagination.
        observations: start observations by key, pixels stacked.
        discount, horizon: of the value.
        samples: rollouts per start.
        generator: draws the model's randomness.
        chunk: rollouts side by side.
    """
    count = len(next(iter(observations.values())))
    everything = np.repeat(np.arange(count), samples)
    returns, met, by_step = [], [], np.zeros(steps_for(discount, horizon))
    with torch.no_grad():
        for first in range(0, len(everything), chunk):
            index = everything[first : first + chunk]
            part = {key: values[index] for key, values in observations.items()}
            share = len(index) / len(everything)
            earned, rewards, pairs = _rollout(
                simulator, template, choose, shown_keys, part, discount, len(by_step), generator, MET * share
            )
            returns.append(earned)
            met += pairs
            by_step += rewards * share
    together = np.concatenate([codes for codes, _ in met]), np.concatenate([actions for _, actions in met])
    return Rollouts(np.concatenate(returns).reshape(count, samples), by_step, together)


def _rollout(
    simulator: Simulator,
    template: Dataset,
    choose: Chooser,
    shown_keys: tuple[str, ...],
    observations: dict[str, Array],
    discount: float,
    steps: int,
    generator: torch.Generator,
    keep: float,
) -> tuple[FloatArray, FloatArray, list[tuple[Array, Array]]]:
    state = simulator.begin(observations, generator)
    count = len(next(iter(observations.values())))
    kept = _counts(keep, discount, steps)
    met: list[tuple[Array, Array]] = []
    total, alive, scale = torch.zeros(count, dtype=torch.float64), torch.ones(count, dtype=torch.float64), 1.0
    by_step, seen = np.zeros(steps), observations
    for step in range(steps):
        actions = choose(state, seen)
        if kept[step]:
            # Spread over the starts, and another set at each step.
            rows = (step + np.arange(kept[step]) * max(1, count // kept[step])) % count
            met.append((simulator.code(state)[rows].numpy(), actions[rows].numpy()))
        state, reward, goes_on = simulator.advance(state, actions, generator)
        paid = alive * reward.double()
        total += scale * paid
        by_step[step] = float(paid.mean())
        alive, scale = alive * goes_on.double(), scale * discount
        if step + 1 < steps and shown_keys:
            seen = restack(seen, simulator.show(state, shown_keys, template), template)
    return total.numpy(), by_step, met


def _counts(keep: float, discount: float, steps: int) -> NDArray[np.int64]:
    """How many states to keep at each step, as the discount counts steps; at least one at the first."""
    weights = discount ** np.arange(steps)
    due = np.floor(np.cumsum(keep * weights / weights.sum()) + 0.5).astype(np.int64)
    counts: NDArray[np.int64] = np.diff(due, prepend=0)
    counts[0] = max(1, counts[0])
    return counts


def restack(seen: Mapping[str, Array], shown: Mapping[str, Array], template: Dataset) -> dict[str, Array]:
    """What a policy sees next: pixel stacks lose their oldest frame and gain the shown one; vectors are replaced."""
    return {
        key: np.concatenate([seen[key][..., frame.shape[-1] :], frame], axis=-1)
        if key in template.pixel_keys
        else frame
        for key, frame in shown.items()
    }


def policy_chooser(template: Dataset, policy: AnyPolicy, generator: np.random.Generator) -> Chooser:
    """The policy itself, at what the model shows."""

    def choose(_: object, seen: dict[str, Array]) -> Tensor:
        chosen = actions_at(template, policy, seen, num_samples=1, generator=generator)
        return torch.from_numpy(one_of(chosen.actions, chosen.weights, generator))

    return choose


def one_of(actions: Array, weights: FloatArray, generator: np.random.Generator) -> Array:
    """One of k weighted actions per row, (n, A)."""
    if weights.shape[1] == 1:
        return np.ascontiguousarray(actions[:, 0])
    uniform = generator.random((len(weights), 1))
    pick = (uniform > np.cumsum(weights, axis=1)[:, :-1]).sum(axis=1)
    return np.ascontiguousarray(actions[np.arange(len(weights)), pick])
