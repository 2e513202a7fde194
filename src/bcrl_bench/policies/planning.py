"""Planned demonstrations, for training only: how to get up is found by search in the simulator, not by luck.

The cross-entropy method (Rubinstein 1999; here over the knots of piecewise linear actions) looks for the
action sequence that gets farthest along the task's measure of progress, on copies of the world that MuJoCo
rolls out in C. What the plan does in the task itself, from the task's own start, is the demonstration.
Planning twenty steps ahead and anew every four, the humanoid stands after two or three seconds and the
quadruped turns off its back; soft actor-critic alone did neither (see results/policies.md).
"""

from dataclasses import dataclass

import mujoco
import numpy as np
import numpy.typing as npt
from mujoco import rollout

from bcrl.errors import BadInput
from bcrl_bench.policies.demonstrations import Demonstration
from bcrl_bench.policies.shaping import STANDING
from bcrl_bench.tasks import ControlTask

Array = npt.NDArray[np.float64]
NECK = 0.19  # metres from the middle of the humanoid's torso to its head
NEAR = 0.98  # progress at a plan's end that needs no further search
STATE = mujoco.mjtState.mjSTATE_FULLPHYSICS


@dataclass(frozen=True)
class Planner:
    """The cross-entropy search."""

    steps: int = 100
    """Agent steps of a demonstration."""
    horizon: int = 20
    """Agent steps that a plan looks ahead."""
    commit: int = 4
    """Agent steps taken before planning again, a multiple of `every`."""
    every: int = 4
    """Agent steps between knots."""
    samples: int = 30
    """Plans tried in a round."""
    elites: int = 4
    """Plans kept of a round."""
    rounds: int = 4
    """Rounds at most; fewer once the plan ends near the top of progress."""

    def __post_init__(self) -> None:
        counts = (self.steps, self.horizon, self.commit, self.every, self.samples, self.elites, self.rounds)
        if min(counts) < 1 or self.commit > self.horizon or self.commit % self.every:
            raise BadInput(
                f"got {self}; expected counts of at least 1, and commit a multiple of every, at most the "
                "horizon."
            )

    def demonstrate(self, task: ControlTask, seed: int) -> Demonstration:
        """What came of planning from the task's start of this seed."""
        physics, generator = task.control.physics, np.random.default_rng(seed)
        scratch = mujoco.MjData(physics.model.ptr)
        observation, _ = task.reset(seed=seed)
        states, actions, rewards = [observation["state"]], list[np.ndarray](), list[float]()
        knots = np.zeros((-(-self.horizon // self.every) + 1, task.action_dim))
        while len(actions) < self.steps:
            plan, knots, foreseen = self._plan(task, scratch, knots, generator)
            taken = min(self.commit, self.steps - len(actions))
            for action in plan[:taken]:
                observation, reward, _, _, _ = task.step(action)
                states.append(observation["state"])
                actions.append(action.astype(np.float32))
                rewards.append(reward)
            knots = _later(knots, self.commit // self.every)
        return Demonstration(
            task=task.name,
            seed=seed,
            states=np.stack(states),
            actions=np.stack(actions),
            rewards=np.array(rewards, np.float32),
            progress=float(progress_of(task.name, physics.data.qpos)),
            foreseen=float(foreseen[taken - 1]),
        )

    def _plan(
        self, task: ControlTask, scratch: mujoco.MjData, mean: Array, generator: np.random.Generator
    ) -> tuple[Array, Array, Array]:
        """The best actions found from where the task stands, their knots, and progress after each action."""
        model, data = task.control.physics.model.ptr, task.control.physics.data.ptr
        state = np.empty(mujoco.mj_stateSize(model, STATE))
        mujoco.mj_getState(model, data, state, STATE)
        starts = np.tile(state, (self.samples, 1))
        # the solver begins from here; without it the task does what the plan foresaw only up to rounding
        warm = np.tile(data.qacc_warmstart, (self.samples, 1))
        low, high = model.actuator_ctrlrange.clip(-1.0, 1.0).T  # what an actor can do
        sub = round(task.control.control_timestep() / model.opt.timestep) * task.action_repeat
        spread, best, best_score, path = np.full(mean.shape, 0.7), mean, -np.inf, np.empty(0)
        near = False
        for _ in range(self.rounds):
            knots = np.clip(mean + spread * generator.standard_normal((self.samples, *mean.shape)), low, high)
            knots[0] = best
            controls = np.repeat(self._between(knots), sub, axis=1)
            paths, _ = rollout.rollout(model, scratch, starts, controls, initial_warmstart=warm)
            progress = progress_of(task.name, paths[:, sub - 1 :: sub, 1 : 1 + model.nq])
            last = progress[:, -max(1, self.horizon // 10) :].mean(1)
            score = progress.mean(1) + last / 3  # what lasts counts more
            score[_exploded(paths)] = -np.inf
            order = np.argsort(-score)[: self.elites]
            if score[order[0]] > best_score:
                best, best_score, path = knots[order[0]], score[order[0]], progress[order[0]]
                near = last[order[0]] > NEAR
            mean = 0.8 * knots[order].mean(0) + 0.2 * mean
            spread = np.maximum(knots[order].std(0), 0.1)
            if near:
                break
        if not len(path):
            raise BadInput(f"{task.name}: every plan made the simulation explode; try another seed.")
        return self._between(best[None])[0], best, path

    def _between(self, knots: Array) -> Array:
        """Actions (n, horizon, k), piecewise linear between knots (n, m, k)."""
        at: Array = np.arange(self.horizon) / self.every
        left = at.astype(int)
        share: Array = (at - left)[None, :, None]
        between = knots[:, left] * (1 - share) + knots[:, left + 1] * share
        return between.astype(np.float32).astype(np.float64)  # as the demonstration holds them


def _later(knots: np.ndarray, by: int) -> np.ndarray:
    """The same plan seen `by` knots later; nothing is known beyond its end."""
    return np.concatenate([knots[by:], np.zeros((min(by, len(knots)), knots.shape[1]))])[: len(knots)]


def _exploded(paths: Array) -> npt.NDArray[np.bool_]:
    """Rollouts that MuJoCo gave up: their clock (the first number) began anew, at a start pose that looks
    like success.
    """
    return np.asarray((np.diff(paths[:, :, 0], axis=1) <= 0).any(axis=1))


def progress_of(task: str, positions: Array) -> Array:
    """Measure of progress in [0, 1] from MuJoCo's positions (..., nq), whose first seven are the torso's
    place and turn.
    """
    upright: Array = 1 - 2 * (positions[..., 4] ** 2 + positions[..., 5] ** 2)
    if domain_of(task) == "quadruped":
        return 0.5 * (1 + upright)
    return np.clip((positions[..., 2] + NECK * upright) / STANDING, 0.0, 1.0)


def domain_of(task: str) -> str:
    """quadruped or humanoid; no other has a measure of progress here."""
    domain = task.partition("-")[0]
    if domain not in ("quadruped", "humanoid"):
        raise BadInput(f"planning knows quadruped and humanoid; got {task}. Train without demonstrations.")
    return domain
