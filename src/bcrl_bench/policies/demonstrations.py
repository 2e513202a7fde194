"""Demonstrations on disk: one .npz file each, named by the seed of its start, and read again as the world was
then.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.data.sources.npz import open_npz, read_member
from bcrl.errors import BadInput
from bcrl.writing import atomic_write
from bcrl_bench.tasks import ControlTask


@dataclass(frozen=True, eq=False)
class Demonstration:
    """One way from a start of the task.

    Attributes:
        task: name of the task.
        seed: of the start.
        states: (n+1, d).
        actions: (n, k).
        rewards: (n,), the task's own.
        progress: at the end, from 0 to 1.
        foreseen: what the last plan thought of it.
    """

    task: str
    seed: int
    states: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    progress: float
    foreseen: float

    def save(self, path: Path) -> None:
        """Write it whole or not at all."""
        arrays: dict[str, Any] = {name: np.asarray(value) for name, value in asdict(self).items()}
        with atomic_write(path) as file:
            np.savez(file, **arrays)

    def rejoin(self, world: ControlTask, moment: int) -> np.ndarray:
        """Bring the world to this moment by doing the same again, and return its state."""
        observation, _ = world.reset(seed=self.seed)
        for action in self.actions[:moment]:
            observation = world.step(action)[0]
        if not np.allclose(observation["state"], self.states[moment], atol=1e-3):
            raise BadInput(
                f"the demonstration of seed {self.seed} goes another way here (another version of MuJoCo?); "
                "plan it again."
            )
        return observation["state"]


def load_demonstration(path: Path, task: str) -> Demonstration:
    """Read one; it must be of this task."""
    with open_npz(path) as file:
        missing = sorted(set(Demonstration.__dataclass_fields__) - set(file.files))
        if missing:
            raise BadInput(
                f"{path} is no demonstration: it has no {missing[0]}. Make some with `bcrl policy plan`."
            )
        kept = {name: read_member(path, file, name) for name in Demonstration.__dataclass_fields__}
    found = str(kept["task"])
    if found != task:
        raise BadInput(
            f"{path} is a demonstration of {found}; expected {task}. Use another folder for each task."
        )
    states, actions, rewards = (kept[name] for name in ("states", "actions", "rewards"))
    if not len(actions) == len(rewards) == len(states) - 1 > 0:
        raise BadInput(
            f"{path} holds {len(states)} states and {len(actions)} actions; expected one more state."
        )
    seed, progress, foreseen = int(kept["seed"]), float(kept["progress"]), float(kept["foreseen"])
    return Demonstration(found, seed, states, actions, rewards, progress, foreseen)


def load_demonstrations(folder: Path, task: str) -> list[Demonstration]:
    """All of a folder, by seed."""
    files = sorted(
        (path for path in folder.glob("*.npz") if path.stem.isdigit()), key=lambda path: int(path.stem)
    )
    if not files:
        raise BadInput(
            f"no demonstrations in {folder}; make some with `bcrl policy plan {task} --out {folder}`."
        )
    return [load_demonstration(file, task) for file in files]


def save_demonstrations(
    world: ControlTask,
    folder: Path,
    seeds: Iterable[int],
    demonstrate: Callable[[ControlTask, int], Demonstration],
) -> Iterable[Demonstration]:
    """One file a seed, given back as it is done; those that are there already are not made again."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        path = folder / f"{seed:05d}.npz"
        if not path.exists():
            demonstrate(world, seed).save(path)
        yield load_demonstration(path, world.name)
