"""Planned demonstrations, for training only: how to get up is found by search in the simulator, not by luck.

The cross-entropy method (Rubinstein 1999; here over the knots of piecewise linear actions) looks for the action sequence that
gets farthest along the task's measure of progress, on copies of the world that MuJoCo rolls out in C. What the plan does in
the task itself, from the task's own start, is the demonstration. Planning a second ahead and anew every four steps, the
humanoid stands after two seconds and the quadruped turns off its back in three; soft actor-critic alone found neither in
hundreds of thousands of steps.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
from mujoco import rollout

from bcrl.benchmark.policies.shaping import STANDING
from bcrl.benchmark.tasks import ControlTask
from bcrl.errors import BadInput

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
    """Agent steps taken before planning again."""
    every: int = 4
    """Agent steps between knots."""
    samples: int = 30
    """Plans tried in a round."""
    elites: int = 4
    """Plans kept of a round."""
    rounds: int = 4
    """Rounds at most; fewer once the plan ends near the top of progress."""

    def demonstrate(self, task: ControlTask, seed: int) -> dict[str, np.ndarray]:
        """What came of planning from the task's start of this seed.

        seed, states (n+1, d), actions (n, k), rewards (n,), progress at the end, and what the last plan had foreseen of it.
        """
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
        return {
            "seed": np.array(seed),
            "states": np.stack(states),
            "actions": np.stack(actions),
            "rewards": np.array(rewards, np.float32),
            "progress": _progress(task.name, physics.data.qpos),
            "foreseen": foreseen[taken - 1],
        }

    def _plan(
        self, task: ControlTask, scratch: mujoco.MjData, mean: Array, generator: np.random.Generator
    ) -> tuple[Array, Array, Array]:
        """The best actions found from where the task stands, their knots, and progress after each action."""
        model, data = task.control.physics.model.ptr, task.control.physics.data.ptr
        state = np.empty(mujoco.mj_stateSize(model, STATE))
        mujoco.mj_getState(model, data, state, STATE)
        starts = np.tile(state, (self.samples, 1))
        # the solver begins from here: without it the task would not do what the plan foresaw
        warm = np.tile(data.qacc_warmstart, (self.samples, 1))
        low, high = model.actuator_ctrlrange.T
        sub = round(task.control.control_timestep() / model.opt.timestep) * task.action_repeat
        spread, best, best_score, path = np.full(mean.shape, 0.7), mean, -np.inf, np.empty(0)
        for _ in range(self.rounds):
            knots = np.clip(mean + spread * generator.standard_normal((self.samples, *mean.shape)), low, high)
            knots[0] = best
            controls = np.repeat(self._between(knots), sub, axis=1)
            paths, _ = rollout.rollout(model, scratch, starts, controls, initial_warmstart=warm)
            progress = _progress(task.name, paths[:, sub - 1 :: sub, 1 : 1 + model.nq])
            last = progress[:, -max(1, self.horizon // 10) :].mean(1)
            score = progress.mean(1) + last / 3  # what lasts counts more
            order = np.argsort(-score)[: self.elites]
            if score[order[0]] > best_score:
                best, best_score, path = knots[order[0]], score[order[0]], progress[order[0]]
                near = last[order[0]] > NEAR
            mean = 0.8 * knots[order].mean(0) + 0.2 * mean
            spread = np.maximum(knots[order].std(0), 0.1)
            if near:
                break
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


def _progress(task: str, positions: Array) -> Array:
    """Measure of progress in [0, 1] from MuJoCo's positions (..., nq), whose first seven are the torso's place and turn."""
    domain = task.partition("-")[0]
    if domain not in ("quadruped", "humanoid"):
        raise BadInput(f"planning knows quadruped and humanoid; got {task}. Train without demonstrations.")
    upright: Array = 1 - 2 * (positions[..., 4] ** 2 + positions[..., 5] ** 2)
    if domain == "quadruped":
        return 0.5 * (1 + upright)
    return np.clip((positions[..., 2] + NECK * upright) / STANDING, 0.0, 1.0)


def load_demonstration(path: Path) -> dict[str, np.ndarray]:
    """What `Planner.demonstrate` returned."""
    with np.load(path, allow_pickle=False) as kept:
        return dict(kept)


def load_demonstrations(folder: Path) -> list[dict[str, np.ndarray]]:
    """All that are in a folder, by seed."""
    files = sorted(folder.glob("[0-9]*.npz"))
    if not files:
        raise BadInput(f"no demonstrations (*.npz) in {folder}; make some with `bcrl policy plan`.")
    return [load_demonstration(file) for file in files]


def rejoin(task: ControlTask, shown: Mapping[str, np.ndarray], moment: int) -> np.ndarray:
    """Bring the task to this moment of a demonstration by doing the same again, and return the state."""
    task.reset(seed=int(shown["seed"]))
    for action in shown["actions"][:moment]:
        task.step(action)
    return np.asarray(shown["states"][moment])


def save_demonstrations(
    task: str,
    folder: Path,
    seeds: Sequence[int],
    planner: Planner,
    show: Callable[[Mapping[str, Any]], None] = lambda news: None,
) -> list[float]:
    """One file a seed, written whole; seeds that are there already are not planned again. Progress at each one's end."""
    world, ends = ControlTask(task, pixels=None), list[float]()
    folder.mkdir(parents=True, exist_ok=True)
    for done, seed in enumerate(seeds, 1):
        path = folder / f"{seed:05d}.npz"
        if not path.exists():
            part = folder / f"part-{seed:05d}.npz"
            one = planner.demonstrate(world, seed)
            np.savez(part, allow_pickle=False, **one)
            part.replace(path)
        ends.append(float(load_demonstration(path)["progress"]))
        show({"stage": "planning", "step": done, "steps": len(seeds), "progress": ends[-1]})
    return ends
