"""The guarded policy of a log of one of the paper's tasks, valued from the log and then in the simulator."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.data.dataset import Array, Dataset
from bcrl.data.select import some_episodes
from bcrl.estimate import FloatArray, NextStep
from bcrl.estimators.consensus import Consensus
from bcrl.next_steps.advice import bound_steps, guard_steps
from bcrl.next_steps.guard import GuardedResult, guard
from bcrl.report.guarded import write_guarded
from bcrl_bench.rollouts import Behaviour, run_episode
from bcrl_bench.tasks import ControlTask

REWARDS = (0.0, 2.0)  # dm_control pays at most 1 a control step, two of which make an agent step
_ROWS, _ROLLOUTS, _STEPS, _SEED = 8_000, 20, 400, 30_000


@dataclass(frozen=True)
class FromState:
    """A policy of dictionaries as one that reads the state; nobody asks for its density."""

    policy: Any
    reads: str = "state"

    def sample(self, observations: Array, generator: np.random.Generator) -> Array:
        return np.asarray(self.policy.sample({"state": observations}, generator))

    def log_prob(self, observations: Array, actions: Array) -> FloatArray:
        del observations
        return np.full(len(actions), np.nan)


def guarded_steps(
    log: Dataset,
    policy: Any,  # noqa: ANN401 - any policy
    task: str,
    discount: float,
    page: Path,
    seed: int,
) -> tuple[NextStep, ...]:
    """Bounds by the rewards that the task can pay, and what the guarded policy is worth, with the simulator's
    answer beside it; its page is written too.
    """
    part = some_episodes(log, _ROWS, seed).dataset if len(log) > _ROWS else log
    found = guard(part, policy, discount=discount, method=Consensus(), rewards=REWARDS, seed=seed)
    write_guarded(found.to_dict(), page)
    truth = simulated(found, task, discount)
    first, *rest = guard_steps(found)
    error = truth["standard_error"]
    told = f"{first.text} Simulated, it earns {truth['value']:.4g} (standard error {error:.2g})."
    numbers = {**first.numbers, "truth": truth["value"], "truth_error": error}
    return (*bound_steps(found.bounds), replace(first, text=told, numbers=numbers), *rest)


def simulated(found: GuardedResult, task: str, discount: float) -> Mapping[str, float]:
    """What the chosen guarded policy truly earns; what comes after 400 steps is left out."""
    behaviour = Behaviour(FromState(found.policy), sampled=True)
    world = ControlTask(task, limit=_STEPS)
    returns = []
    for rollout in range(_ROLLOUTS):
        rewards = run_episode(world, behaviour, (_SEED, rollout)).rewards
        returns.append(float(rewards @ discount ** np.arange(len(rewards))))
    return {
        "value": float(np.mean(returns)),
        "standard_error": float(np.std(returns, ddof=1) / np.sqrt(len(returns))),
    }
