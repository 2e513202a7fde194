"""Imagined rollouts: the policy acts in the model, and what the model pays is added up.

    V(s0) = E sum_t gamma^t  (chance of still going on at t)  r_hat(s_t, a_t)

The first action is chosen at the real observation; later ones at what the model shows. The reward of the
step on which the world ends counts (policy_eval drops it). Chances of going on are multiplied, not drawn,
which adds no variance.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bcrl import salts
from bcrl.data.dataset import Array, Dataset
from bcrl.estimate import FloatArray
from bcrl.estimators.model_based.actors import Actor, Copy, CopyActing, PolicyItself, State, keys_to_show
from bcrl.estimators.model_based.dreamer import DreamerModel
from bcrl.estimators.model_based.one_step import OneStepModel
from bcrl.policies.policy import AnyPolicy
from bcrl.training import generators

TAIL = 1e-3  # share of the discounted future that is left when an endless rollout is cut
_ROUNDING = 1e-12
PAIRS = 2000  # states and actions met in imagination that are kept for the audit
_ROLLOUTS, _ROLLOUTS_OF_FRAMES = 4096, 256  # rollouts computed together


class World(Protocol):
    """A learned model that a policy can act in; each model has its own form of state."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Observation keys that it can show to a policy."""
        ...

    @property
    def judged_keys(self) -> tuple[str, ...]:
        """Keys whose predictions are compared with the log."""
        ...

    @property
    def privileged(self) -> tuple[str, ...]:
        """Keys that it does not see but can show to a policy."""
        ...

    def first_state(self, observations: Mapping[str, Array], generator: torch.Generator) -> State:
        """The state after one observation."""
        ...

    def show(self, state: State, keys: tuple[str, ...], template: Dataset) -> dict[str, Array]:
        """What a policy that reads `keys` would see: single frames, and vectors in their own unit."""
        ...

    def advance(
        self, state: State, actions: Tensor, generator: torch.Generator
    ) -> tuple[State, Tensor, Tensor]:
        """Next state, reward and chance of going on, after these actions."""
        ...

    def vector(self, state: State) -> Tensor:
        """A vector per state, by which states are compared."""
        ...

    def held_out_rewards(
        self, dataset: Dataset, held_out: NDArray[np.int64], generator: torch.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Logged and predicted rewards of transitions that it was not trained on."""
        ...

    def spec(self) -> dict[str, Any]: ...

    def tensors(self) -> dict[str, Array]: ...


@dataclass(frozen=True)
class Plan:
    """How long and how often the policy acts in the model.

    Attributes:
        discount, horizon: of the value.
        samples: rollouts per observation.
        seed: draws the model's and the policy's randomness.
    """

    discount: float
    horizon: int | None
    samples: int
    seed: int

    @property
    def steps(self) -> int:
        """Steps of a rollout: until a thousandth of the future is left; with a horizon, all of it, or until
        the rest is no more than rounding.
        """
        if self.horizon is not None and self.discount == 1.0:
            return self.horizon
        tail = TAIL if self.horizon is None else _ROUNDING
        steps = 1 if self.discount == 0.0 else max(1, math.ceil(math.log(tail) / math.log(self.discount)))
        return steps if self.horizon is None else min(self.horizon, steps)


@dataclass(frozen=True, eq=False)
class Rollouts:
    """What happened in imagination.

    Attributes:
        returns: of each start and sample, (n0, samples).
        reward_by_step: mean imagined reward.
        states, actions: some of the pairs met, drawn in proportion to the discount.
    """

    returns: FloatArray
    reward_by_step: FloatArray
    states: Array
    actions: Array

    @property
    def per_start(self) -> FloatArray:
        return np.asarray(self.returns.mean(axis=1))

    @property
    def standard_error(self) -> float:
        """Of the value if the model were true, over start states (over rollouts where there is one start)."""
        drawn = self.per_start if len(self.returns) > 1 else self.returns[0]
        return float(drawn.std() / np.sqrt(max(len(drawn) - 1, 1)))


@dataclass(frozen=True, eq=False)
class ModelValue:
    """The value function of a model-based estimate: V(s) by imagined rollouts from anywhere.

    Attributes:
        model: the trained model.
        template: the kind of data that observations come as.
        policy: the evaluated policy.
        plan: how long and how often the policy acts.
        copy: the copy of the policy that acts in its place; None lets the policy act itself.
    """

    model: World
    template: Dataset
    policy: AnyPolicy
    plan: Plan
    copy: Copy | None = None

    def value(self, observations: Mapping[str, Array]) -> FloatArray:
        return self.imagine(observations).per_start

    def standard_error(self, observations: Mapping[str, Array]) -> FloatArray | None:
        del observations
        return None

    def imagine(self, observations: Mapping[str, Array]) -> Rollouts:
        """Rollouts from each observation."""
        keyed = self.template.keyed(observations)
        # Salted: data simulated with the same plain seed must not share its draws with the policy's.
        numpy_generator = np.random.default_rng([self.plan.seed, salts.IMAGINED])
        _, generator = generators(self.plan.seed)
        actor = self._actor(numpy_generator, generator)
        with torch.no_grad():
            return rollouts(self.model, self.template, actor, keyed, self.plan, generator)

    @property
    def keys_shown(self) -> tuple[str, ...]:
        """Observation keys that the model shows to the policy."""
        return () if self.copy is not None else keys_to_show(self.template, self.policy, self.model.keys)

    def _actor(self, numpy_generator: np.random.Generator, generator: torch.Generator) -> Actor:
        if self.copy is None:
            return PolicyItself(self.policy, self.template, self.keys_shown, numpy_generator)
        assert isinstance(self.model, DreamerModel)
        net, spread = self.model.policy_heads[self.copy.number], torch.tensor(self.copy.spread)
        return CopyActing(net, spread, self.template.discrete, numpy_generator, generator)

    def tensors(self) -> dict[str, Array]:
        return self.model.tensors()

    def spec(self) -> dict[str, Any]:
        copied = {} if self.copy is None else asdict(self.copy)
        own = {"imagination": "latent" if copied else "policy", **asdict(self.plan), **copied}
        return {"kind": "model", **own, "world": self.model.spec()}


def restore(
    spec: Mapping[str, Any],
    tensors: Mapping[str, Array],
    *,
    template: Dataset,
    policy: AnyPolicy,
    **_: Any,  # noqa: ANN401 - what other kinds of value function need
) -> ModelValue:
    """The value function that `spec` and `tensors` came from."""
    kind = OneStepModel if spec["world"]["model"] == "markov" else DreamerModel
    plan = Plan(**{name: spec[name] for name in ("discount", "horizon", "samples", "seed")})
    copy = Copy(spec["number"], tuple(spec["spread"])) if spec["imagination"] == "latent" else None
    return ModelValue(kind.restore(spec["world"], tensors), template, policy, plan, copy)


def rollouts(
    model: World,
    template: Dataset,
    actor: Actor,
    observations: Mapping[str, Array],
    plan: Plan,
    generator: torch.Generator,
) -> Rollouts:
    """Let an actor act from each observation, `plan.samples` times.

    Args:
        model: the world.
        template: the kind of data.
        actor: who acts.
        observations: start observations by key, pixels stacked.
        plan: how long and how often.
        generator: draws the model's randomness.
    """
    count = len(next(iter(observations.values())))
    starts = np.repeat(np.arange(count), plan.samples)
    chunk = _ROLLOUTS_OF_FRAMES if any(key in template.pixel_keys for key in actor.reads) else _ROLLOUTS
    returns, pairs, by_step = [], [], np.zeros(plan.steps)
    for first in range(0, len(starts), chunk):
        index = starts[first : first + chunk]
        share = len(index) / len(starts)
        tally = Tally(len(index), plan, PAIRS * share)
        seen = {key: values[index] for key, values in observations.items()}
        state = model.first_state(seen, generator)
        for step in range(plan.steps):
            actions = actor.act(state, seen)
            if tally.due[step]:
                tally.keep(step, model.vector(state), actions)
            state, reward, goes_on = model.advance(state, actions, generator)
            tally.pay(step, reward, goes_on)
            if step + 1 < plan.steps and actor.reads:
                seen = restack(seen, model.show(state, actor.reads, template), template)
        returns.append(tally.total.numpy())
        pairs += tally.pairs
        by_step += tally.by_step * share
    states, actions_met = (np.concatenate(blocks) for blocks in zip(*pairs, strict=True))
    return Rollouts(np.concatenate(returns).reshape(count, plan.samples), by_step, states, actions_met)


class Tally:
    """What rollouts side by side have earned so far, and some of the (states, actions) that they met."""

    def __init__(self, count: int, plan: Plan, pairs: float) -> None:
        self.count, self.discount = count, plan.discount
        self.total = torch.zeros(count, dtype=torch.float64)
        self.alive, self.scale = torch.ones(count, dtype=torch.float64), 1.0
        self.by_step = np.zeros(plan.steps)
        self.due = pairs_by_step(pairs, plan.discount, plan.steps)
        self.pairs: list[tuple[Array, Array]] = []

    def keep(self, step: int, states: Tensor, actions: Tensor) -> None:
        """Keep this step's number of pairs: spread over the starts, different ones at each step."""
        due = self.due[step]
        rows = (step + np.arange(due) * max(1, self.count // due)) % self.count
        self.pairs.append((states[rows].numpy(), actions[rows].numpy()))

    def pay(self, step: int, reward: Tensor, goes_on: Tensor) -> None:
        """Add this step's reward, discounted, times the chance that the world still goes on."""
        paid = self.alive * reward.double()
        self.total += self.scale * paid
        self.by_step[step] = float(paid.mean())
        self.alive, self.scale = self.alive * goes_on.double(), self.scale * self.discount


def pairs_by_step(pairs: float, discount: float, steps: int) -> NDArray[np.int64]:
    """How many pairs to keep at each step, in proportion to the discount; at least one at the first."""
    weights = discount ** np.arange(steps)
    due = np.floor(np.cumsum(pairs * weights / weights.sum()) + 0.5).astype(np.int64)
    counts: NDArray[np.int64] = np.diff(due, prepend=0)
    counts[0] = max(1, counts[0])
    return counts


def restack(seen: Mapping[str, Array], shown: Mapping[str, Array], template: Dataset) -> dict[str, Array]:
    """What a policy sees next: stacks drop their oldest frame for the shown one; vectors are replaced."""
    return {
        key: np.concatenate([seen[key][..., frame.shape[-1] :], frame], axis=-1)
        if key in template.pixel_keys
        else frame
        for key, frame in shown.items()
    }
