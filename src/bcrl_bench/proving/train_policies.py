"""Learns the proving ground's policies: one uninterrupted SAC run each, a short one of another seed.

    python -m bcrl_bench.proving.train_policies learn RUNS [name ...]  every run that is not there
    python -m bcrl_bench.proving.train_policies ship RUNS [name ...]   poor, medium, good, other -> weights/

A run's folder holds `<step>.safetensors`, ten actors on the way with what they earned, and `curve.json` once
it is complete; a run that was cut short begins anew, so that every ladder is one lineage.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from bcrl.writing import atomic_write
from bcrl_bench.policies.actor import NumpyActor, measured
from bcrl_bench.policies.replay import Buffer
from bcrl_bench.policies.sac import SAC, Learner
from bcrl_bench.proving.control_worlds import control_copies
from bcrl_bench.proving.gym_worlds import ant_copies, gym_copies
from bcrl_bench.proving.stepped import Simulator

WEIGHTS = Path(__file__).parent / "weights"
CHECKPOINTS = 10
JUDGED = 10  # episodes an actor on the way is judged by


@dataclass(frozen=True)
class Run:
    """One environment to learn.

    Attributes:
        make: copies of the simulator.
        steps: of the main run.
        length: steps after which a training episode is cut (the world goes on).
        other: steps of the short run of another seed; 0 where the other lineage is written by hand.
        scale: multiplies rewards for the learner alone.
        updates_per_step: of the learner.
    """

    make: Callable[[], Simulator]
    steps: int
    length: int
    other: int = 0
    scale: float = 1.0
    updates_per_step: float = 1.0


RUNS = {
    "pendulum": Run(gym_copies("Pendulum-v1"), 6_000, 200, scale=0.1),
    "inverted_double_pendulum": Run(gym_copies("InvertedDoublePendulum-v5"), 15_000, 500, scale=0.1),
    "reacher": Run(gym_copies("Reacher-v5"), 60_000, 100),
    "pusher": Run(gym_copies("Pusher-v5"), 80_000, 100, other=30_000),
    "reacher_easy": Run(control_copies("reacher-easy"), 40_000, 250),
    "ball_in_cup": Run(control_copies("ball_in_cup-catch"), 20_000, 250, other=12_000),
    "cartpole_swingup": Run(control_copies("cartpole-swingup"), 20_000, 500),
    "walker_walk": Run(control_copies("walker-walk"), 50_000, 500, updates_per_step=0.5),
    "ant": Run(ant_copies(), 60_000, 500, other=30_000, updates_per_step=0.5),
}


class Session:
    """One run: a simulator, the buffer and the learner together."""

    def __init__(self, name: str, run: Run, seed: int) -> None:
        self.name, self.run = name, run
        self.simulator, self.generator = run.make(), np.random.default_rng(seed)
        self.state = self._begin()
        states, actions = len(self.state), self.simulator.action_dim
        sac = SAC(width=64, learning_rate=1e-3, batch=128, n_step=3, random_steps=1_000, seed=seed)
        self.learner = Learner(sac, states, actions)
        self.buffer = Buffer(run.steps, states, actions, sac.n_step, sac.discount)
        self.total, self.square, self.step, self.left = np.zeros(states), np.zeros(states), 0, run.length

    def _begin(self) -> np.ndarray:
        self.simulator.reset(int(self.generator.integers(2**31)))
        return self.simulator.observation.astype(np.float32)

    def advance(self) -> None:
        """One step into the buffer, one update."""
        config = self.learner.config
        warm = self.step >= config.random_steps
        action = self.learner.explore(self.state) if warm else self._uniform()
        reward, ended = self.simulator.step(action)
        seen = self.simulator.observation
        after, self.left = seen.astype(np.float32), self.left - 1
        last = ended or self.left == 0
        self.buffer.add(self.state, action, self.run.scale * reward, after, ended, last)
        self.total, self.square = self.total + seen, self.square + seen**2
        self.step, self.state = self.step + 1, after
        if last:
            self.state, self.left = self._begin(), self.run.length
        if self.step % 1_000 == 0:
            self._normalise()
        if warm and self.step * self.run.updates_per_step % 1.0 == 0.0:
            self.learner.update(self.buffer)

    def _uniform(self) -> np.ndarray:
        return self.generator.uniform(-1, 1, self.learner.action_dim).astype(np.float32)

    def _normalise(self) -> None:
        mean = self.total / self.step
        scale = np.sqrt(np.maximum(self.square / self.step - mean**2, 0.0))
        self.learner.mean = torch.from_numpy(mean).float()
        self.learner.scale = torch.from_numpy(np.maximum(scale, 1e-2)).float()

    def judged(self) -> NumpyActor:
        """The actor as it is now, with what it earns."""
        about = {"task": self.name, "step": str(self.step)}
        actor, seeds = NumpyActor(self.learner.export(), about), list(range(1_000, 1_000 + JUDGED))
        returns = np.array([episode_return(self.run, actor, seed) for seed in seeds])
        return NumpyActor(actor.tensors, about | measured(returns, seeds))


def episode_return(run: Run, actor: NumpyActor, seed: int) -> float:
    """Undiscounted, the deterministic action, until the world ends or the record is cut."""
    simulator, total = run.make(), 0.0
    simulator.reset(seed)
    for _ in range(run.length):
        reward, ended = simulator.step(actor.act(simulator.observation[None])[0])
        total += reward
        if ended:
            break
    return total


def run_once(name: str, run: Run, seed: int, folder: Path) -> None:
    """One uninterrupted run with ten actors on the way."""
    session, curve, started = Session(name, run, seed), [], time.monotonic()
    for step in range(1, run.steps + 1):
        session.advance()
        if step % (run.steps // CHECKPOINTS) == 0:
            actor = session.judged()
            actor.save(folder / f"{step:06d}.safetensors")
            curve.append({"step": step, "return": float(actor.metadata["return_mean"])})
            print(name, seed, curve[-1], f"{time.monotonic() - started:.0f} s", flush=True)
    with atomic_write(folder / "curve.json") as file:
        file.write(json.dumps(curve).encode())


def learn(folder: Path, names: list[str]) -> None:
    """Every run that is not complete yet, one after another."""
    for name in names or RUNS:
        run = RUNS[name]
        for seed, steps in ((0, run.steps), (1, run.other)):
            where = folder / name / str(seed)
            if steps and not (where / "curve.json").exists():
                where.mkdir(parents=True, exist_ok=True)
                run_once(name, replace(run, steps=steps), seed, where)


def ladder(curve: list[dict[str, float]]) -> dict[str, int]:
    """Steps of the poor, medium and good actor: the best one, and those nearest to three fifths and one fifth
    of the way there from the worst.
    """
    returns = np.array([point["return"] for point in curve])
    chosen: dict[str, int] = {}
    for level, share in (("good", 1.0), ("medium", 0.6), ("poor", 0.2)):
        wanted = returns.min() + share * (returns.max() - returns.min())
        free = [i for i in range(len(curve)) if int(curve[i]["step"]) not in chosen.values()]
        chosen[level] = int(curve[min(free, key=lambda i: abs(returns[i] - wanted))]["step"])
    return chosen


def ship(folder: Path, names: list[str]) -> None:
    """Copy what the complete runs chose into the package, and say what it earned."""
    for name in names or RUNS:
        steps = ladder(json.loads((folder / name / "0" / "curve.json").read_text()))
        sources = {level: folder / name / "0" / f"{step:06d}.safetensors" for level, step in steps.items()}
        second = folder / name / "1" / "curve.json"
        if second.exists():
            best = ladder(json.loads(second.read_text()))["good"]
            sources["other"] = second.with_name(f"{best:06d}.safetensors")
        for level, source in sources.items():
            actor = NumpyActor.load(source)
            (WEIGHTS / name).mkdir(parents=True, exist_ok=True)
            actor.save(WEIGHTS / name / f"{level}.safetensors")
            earned = (actor.metadata[key] for key in ("step", "return_mean", "return_sd", "episodes"))
            print(name, level, *earned)


def main() -> None:
    """`learn RUNS [name ...]` or `ship RUNS [name ...]`."""
    works = {"learn": learn, "ship": ship}
    if len(sys.argv) < 3 or sys.argv[1] not in works:
        raise SystemExit(f"got {sys.argv[1:]}; expected learn or ship, a folder, and names of runs or none.")
    unknown = sorted(set(sys.argv[3:]) - set(RUNS))
    if unknown:
        raise SystemExit(f"no run is called {unknown[0]!r}; expected one of {', '.join(RUNS)}.")
    works[sys.argv[1]](Path(sys.argv[2]), sys.argv[3:])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
