"""The default answer on 40,000 rows of vectors: what it costs, and what more policies and more actions add.

    python -m bcrl_bench.speed.run answers

A whole answer takes a core-minute or more, one about a hundred policies ten. So its parts are measured by
turns, in core-seconds, and added up as the default takes them (`answer`): three trainings of 600 steps with
twenty looks at held-out rows, one pass over the log for each, then for each policy one closer look and one
error budget. The whole answer about one policy, measured in `before.py`, is the check on that sum.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from bcrl.data.dataset import Dataset
from bcrl.estimators.dice.method import FlowDICE
from bcrl.estimators.fqe.flat import Flat
from bcrl.estimators.fqe.method import FQE
from bcrl.estimators.lspe.fit import PolicyFit, moments_by_block
from bcrl.estimators.lspe.method import LSPE
from bcrl.estimators.lspe.value import LinearValue
from bcrl.estimators.weighting.doubly_robust import DoublyRobust
from bcrl.inference.evidence import Evidence
from bcrl.inference.inputs import td_of
from bcrl.policies.policy import TargetActions
from bcrl.question import Question
from bcrl.representations.bellman_complete import BellmanComplete
from bcrl.representations.bellman_complete.fitting import Choice, Watch, _batches, _split, network
from bcrl.representations.bellman_complete.learner import BellmanCompleteLearner
from bcrl.representations.features import Encoded, FittedFeatures
from bcrl.representations.fixed import RandomFeatures
from bcrl.training import Run, generators
from bcrl_bench.asking import ask_one
from bcrl_bench.speed.clock import core_seconds, matmul_rate, row
from bcrl_bench.speed.fqe import ACTION, STATE, make_arrays

DISCOUNT, REPEATS, STEPS, LOOKS = 0.99, 3, 600, 20
_DEFAULT = BellmanComplete()


def make_dataset(actions: int = 0, episodes: int = 200, length: int = 200) -> Dataset:
    """A stable linear system with six continuous actions, or as many discrete ones as said."""
    arrays = make_arrays(episodes=episodes, length=length + 1)
    count = episodes * length
    logged = arrays["actions"][:, :-1].reshape(count, ACTION)
    truncated = np.zeros(count, dtype=bool)
    truncated[length - 1 :: length] = True
    return Dataset(
        observations={"observation": arrays["observations"].reshape(-1, STATE)},
        actions=np.random.default_rng(1).integers(0, actions, count) if actions else logged,
        rewards=arrays["rewards"][:, :-1].reshape(-1).astype(np.float64),
        terminated=np.zeros(count, dtype=bool),
        truncated=truncated,
        offsets=np.arange(episodes + 1, dtype=np.int64) * length,
        num_actions=actions or None,
        single=True,
    )


@dataclass(frozen=True)
class Linear:
    """A deterministic policy of continuous actions."""

    seed: int
    reads: str = "observation"

    def act(self, states: Any) -> Any:
        weights = 0.2 * np.random.default_rng(self.seed).normal(size=(STATE, ACTION)) / np.sqrt(STATE)
        return np.clip(states @ weights, -1.0, 1.0).astype(np.float32)


@dataclass(frozen=True)
class Soft:
    """A policy that gives every one of many actions some probability."""

    actions: int
    reads: str = "observation"

    def probabilities(self, states: Any) -> Any:
        scores = states @ (0.3 * np.random.default_rng(2).normal(size=(STATE, self.actions)))
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        return chances / chances.sum(axis=1, keepdims=True)


class Parts:
    """The parts of the default answer about some policies.

    Args:
        dataset: the log.
        policies: by name.
        recipe: of the features; the default, unless a test asks for less.
    """

    def __init__(
        self, dataset: Dataset, policies: dict[str, Any], recipe: BellmanComplete = _DEFAULT
    ) -> None:
        self.dataset = dataset
        self.question = Question.of(dataset, policies, discount=DISCOUNT)
        self.targets: list[TargetActions] = [target.actions for target in self.question.targets.values()]
        self.recipe = recipe.completed(pixels=False)
        assert self.recipe.steps is not None
        generator = generators(0)[1]
        net = network(self.recipe, dataset, generator)
        held_out, training = _split(self.recipe, dataset, 0)
        batches = _batches(self.recipe, dataset, self.targets, net, training, 0)
        self.learner = BellmanCompleteLearner(
            self.recipe,
            net,
            batches,
            discount=DISCOUNT,
            steps=self.recipe.steps,
            reward_variance=float(dataset.rewards.var()),
            generator=generator,
            choice=Choice(False),
        )
        kept = self.learner.average
        self.watch = Watch(kept, batches, held_out, discount=DISCOUNT, limit=8192, chunk=8192)

    def step(self) -> None:
        self.learner.step()

    def encoded(self) -> Encoded:
        return Encoded.of(self.dataset, FittedFeatures(self.learner.average))

    def passed(self) -> None:
        """One pass over the log for the moments of all policies."""
        moments_by_block(self.encoded(), self.targets)

    @cached_property
    def fit(self) -> PolicyFit:
        encoded = self.encoded()
        rows = slice(None)
        return next(LSPE()._evaluate(self.question, encoded, rows, Run(), keep=True))[1]

    def closer(self) -> None:
        """The closer look at one policy's answer."""
        self.fit.answer(later=True).closer()

    @cached_property
    def value_function(self) -> LinearValue:
        return self.fit.answer(later=True).closer().value_function

    def budget(self) -> None:
        """The error budget of one policy's answer."""
        target, value = next(iter(self.question.targets.values())), self.value_function
        td_of(value.q, self.question, target, Evidence.of(self.question, target).inputs, value.v_of)


def answer(seconds: Mapping[str, float], name: str, policies: int) -> float:
    """Core-seconds of a whole answer about so many policies, from those of its parts."""
    step, look = (seconds[f"{part} {name}"] for part in ("step", "look"))
    first, more = seconds["pass one"] if name == "one" else seconds[f"pass {name}"], 0.0
    if policies > 1:
        first, both = seconds["pass one"], seconds["pass many"]
        more = (both - first) / (_MANY - 1)
    alone = "one" if policies > 1 else name
    each = seconds[f"closer {alone}"] + seconds[f"budget {alone}"]
    return REPEATS * (STEPS * step + LOOKS * look + first + (policies - 1) * more) + policies * each


_MANY = 4  # policies that the parts of an answer about many are measured with: beyond three, steps draw three


def measure(rounds: int = 3) -> dict[str, dict[str, object]]:
    """Many policies and many actions against one of continuous actions; the share of the core's rate."""
    one = Parts(make_dataset(), {"p": Linear(0)})
    cases = {
        "one": one,
        "many": Parts(one.dataset, {f"p{k}": Linear(k) for k in range(_MANY)}),
        "25 actions": Parts(make_dataset(25), {"p": Soft(25)}),
        "1000 actions": Parts(make_dataset(1000), {"p": Soft(1000)}),
    }
    actions: dict[str, Callable[[], object]] = {}
    for name, parts in cases.items():
        actions |= {f"step {name}": parts.step, f"look {name}": parts.watch, f"pass {name}": parts.passed}
        if name != "many":
            actions |= {f"closer {name}": parts.closer, f"budget {name}": parts.budget}
    found = core_seconds(actions, rounds)
    plain = answer(found, "one", 1)

    of_others = other_methods(rounds)

    def against(name: str, policies: int) -> dict[str, object]:
        total = answer(found, name, policies)
        more: dict[str, object] = {"parts": {part: round(second, 4) for part, second in found.items()}}
        if name in of_others:
            more["ratio_of_other_methods"] = of_others[name]
        return row(total, plain, total / plain, "core-seconds an answer, from its parts", **more)

    rate = matmul_rate()
    work = _multiply_adds(one) / found["step one"]
    return {
        "sixteen_policies_vs_one": against("many", 16),
        "hundred_policies_vs_one": against("many", 100),
        "actions_25_vs_continuous": against("25 actions", 1),
        "actions_1000_vs_continuous": against("1000 actions", 1),
        "matmul_share_vectors": row(work, rate, work / rate, "multiply-adds a core-second"),
    }


def other_methods(rounds: int) -> dict[str, dict[str, float]]:
    """Core-seconds of other methods' answers over those for continuous actions, by number of actions.

    On 4,000 rows and with short trainings, so that what does not depend on a training's length counts for
    more than it does in a real answer.
    """
    fqe = FQE(steps=200, flat=Flat(least_steps=200, check_every=100))
    methods: dict[str, Any] = {
        "fqe": fqe,
        "dr": DoublyRobust(q=fqe, bandwidth=0.3),
        "dice": FlowDICE(steps=200),
        "lspe": LSPE(RandomFeatures(dim=200)),
    }
    cases = {"one": (make_dataset(0, 40, 100), Linear(0))}
    cases |= {f"{count} actions": (make_dataset(count, 40, 100), Soft(count)) for count in (25, 1000)}
    run = Run(device="cpu")
    found = core_seconds(
        {
            f"{name} {case}": partial(ask_one, method, dataset, policy, DISCOUNT, run=run)
            for name, method in methods.items()
            for case, (dataset, policy) in cases.items()
        },
        rounds,
    )
    return {
        case: {name: round(found[f"{name} {case}"] / found[f"{name} one"], 2) for name in methods}
        for case in cases
        if case != "one"
    }


def _multiply_adds(parts: Parts) -> float:
    """Of one step: the head forward, and twice that backward, for (s, a) and (s', pi)."""
    head = parts.learner.net.head
    weights = [layer.weight for layer in head.mlp if isinstance(layer, torch.nn.Linear)]
    # The first layer passes no gradient on to its inputs.
    work = sum(3 * w.numel() for w in weights) - weights[0].numel()
    return 2.0 * parts.learner.batch_size * work
