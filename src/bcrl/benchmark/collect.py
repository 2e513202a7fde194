"""Collect a dataset from behaviours on a task, in several processes, straight into a dataset folder.

Each episode is its own seeded unit and its own file under `parts/`, so a killed collection goes on where it stopped and
ends in the same bytes. When all episodes are there they are copied one by one into the dataset's arrays: one
episode in memory at a time (10.6 MB at 84 x 84), whatever the dataset's size.
"""

import contextlib
import hashlib
import json
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.benchmark.rollouts import Behaviour, Episode, check_fits, run_episode
from bcrl.benchmark.tasks import ControlTask, Rendering
from bcrl.errors import BadInput

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Source:
    """One behaviour of a mixture: whole episodes of it, `share` of all."""

    name: str
    behaviour: Behaviour
    share: float = 1.0


@dataclass(frozen=True)
class Collection:
    """What to collect; every field but `processes` fixes the bytes."""

    task: str
    sources: tuple[Source, ...]
    episodes: int = 200
    pixels: int | None = 84
    stack: int = 3
    rendering: Rendering = "fast"
    limit: int = 500
    seed: int = 0
    processes: int = 2

    def source_of(self, episode: int) -> int:
        """Which behaviour runs this episode: the one furthest behind its share, so any prefix is mixed."""
        total = sum(source.share for source in self.sources)
        counts = [0] * len(self.sources)
        choice = 0
        for number in range(episode + 1):
            lags = [
                source.share / total * (number + 1) - count
                for source, count in zip(self.sources, counts, strict=True)
            ]
            choice = int(np.argmax(lags))
            counts[choice] += 1
        return choice

    def settings(self) -> dict[str, Any]:
        """What must match for a collection to be continued."""
        sources = [
            {"name": s.name, "share": s.share, "noise": s.behaviour.noise, "sampled": s.behaviour.sampled}
            | {"policy": fingerprint(s.behaviour.policy)}
            for s in self.sources
        ]
        fields = {"task": self.task, "episodes": self.episodes, "pixels": self.pixels, "stack": self.stack}
        return fields | {
            "rendering": self.rendering,
            "limit": self.limit,
            "seed": self.seed,
            "sources": sources,
        }

    def make_task(self) -> ControlTask:
        """The environment that every episode runs in."""
        return ControlTask(self.task, pixels=self.pixels, rendering=self.rendering, limit=self.limit)


def fingerprint(policy: Any) -> str:  # noqa: ANN401 - any policy
    """Hash of a policy's weights; `uniform` for none. Policies without `to_bytes` go by their pickled bytes."""
    if policy is None:
        return "uniform"
    data = (
        policy.to_bytes()
        if hasattr(policy, "to_bytes")
        else multiprocessing.reduction.ForkingPickler.dumps(policy)
    )
    return hashlib.sha256(bytes(data)).hexdigest()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Child processes made inside see one BLAS thread each: faster on few cores, and the same bits everywhere."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


class Worker:
    """Runs single episodes of a collection; one environment for each process."""

    current: "Worker"

    def __init__(self, collection: Collection, folder: Path) -> None:
        self.collection, self.folder, self.task = collection, folder, collection.make_task()
        for source in collection.sources:
            check_fits(self.task, source.behaviour)

    def run(self, episode: int) -> int:
        """Roll out one episode and write it whole; returns its length."""
        source = self.collection.sources[self.collection.source_of(episode)]
        result = run_episode(self.task, source.behaviour, (self.collection.seed, episode))
        arrays = {f"observations.{key}": value for key, value in result.observations.items()}
        arrays |= {"actions": result.actions, "rewards": result.rewards, "log_prob": result.log_prob}
        part = self.folder / f"{episode:06d}.writing"
        with part.open("wb") as file:
            np.savez(file, terminated=np.array(result.terminated), **arrays)  # type: ignore[arg-type]
        part.replace(part_path(self.folder, episode))
        return len(result.rewards)


def part_path(folder: Path, episode: int) -> Path:
    """Where one episode waits for the merge."""
    return folder / f"{episode:06d}.npz"


def load_part(path: Path) -> Episode:
    """Read one episode back."""
    with np.load(path) as file:
        prefix = "observations."
        observations = {key.removeprefix(prefix): file[key] for key in file.files if key.startswith(prefix)}
        return Episode(
            observations, file["actions"], file["rewards"], file["log_prob"], bool(file["terminated"])
        )


def _start_worker(collection: Collection, folder: Path) -> None:
    Worker.current = Worker(collection, folder)


def _run_one(episode: int) -> int:
    return Worker.current.run(episode)


def lengths_of(collection: Collection, parts: Path, missing: Sequence[int]) -> Iterator[int]:
    """Run the missing episodes, yielding each one's length as it is written."""
    if collection.processes == 1:
        worker = Worker(collection, parts)
        yield from map(worker.run, missing)
        return
    context = multiprocessing.get_context("spawn")  # EGL and BLAS do not survive a fork
    with one_thread(), context.Pool(collection.processes, _start_worker, (collection, parts)) as pool:
        yield from pool.imap_unordered(_run_one, missing)


def collect(
    collection: Collection, folder: Path, show: Callable[[dict[str, Any]], None] = lambda line: None
) -> Path:
    """Collect into `folder`; call again after an interruption to go on. Returns the dataset folder."""
    if not collection.sources or collection.episodes < 1 or any(s.share <= 0 for s in collection.sources):
        raise BadInput(
            "A collection needs at least one episode and one behaviour, each with a positive share."
        )
    if is_complete(folder, collection):
        return folder
    parts = folder / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    _claim(collection, parts / "collection.json")
    missing = [number for number in range(collection.episodes) if not part_path(parts, number).exists()]
    done = collection.episodes - len(missing)
    for length in lengths_of(collection, parts, missing):
        done += 1
        show({"episodes": done, "of": collection.episodes, "transitions": length})
    merge(collection, folder)
    return folder


def _claim(collection: Collection, path: Path) -> None:
    """Refuse to mix two collections in one folder."""
    if path.exists():
        if json.loads(path.read_text()) != collection.settings():
            raise BadInput(
                f"{path.parent.parent} holds a half-done collection with other settings ({path}). "
                "Use the same settings to go on, or another folder."
            )
        return
    path.write_text(json.dumps(collection.settings(), indent=1))


def merge(collection: Collection, folder: Path) -> None:
    """Copy the episodes into the dataset's arrays, one at a time, then drop them; `dataset.json` comes last."""
    parts = folder / "parts"
    episodes = [part_path(parts, number) for number in range(collection.episodes)]
    lengths = np.array([_length(path) for path in episodes])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    first, rows = load_part(episodes[0]), int(offsets[-1])
    arrays = {"rewards": _array(folder / "rewards.npy", (rows,), np.float64)}
    arrays["actions"] = _array(folder / "actions.npy", (rows, *first.actions.shape[1:]), first.actions.dtype)
    arrays |= {
        name: _array(folder / f"{name}.npy", (rows,), np.bool_) for name in ("terminated", "truncated")
    }
    if all(source.behaviour.has_density for source in collection.sources):
        arrays["log_prob"] = _array(folder / "log_prob.npy", (rows,), np.float64)
    for key, value in first.observations.items():
        shape = (rows + len(lengths), *value.shape[1:])
        arrays[f"observations/{key}"] = _array(folder / "observations" / f"{key}.npy", shape, value.dtype)
    for number, path in enumerate(episodes):
        _place(arrays, load_part(path), int(offsets[number]), number)
    for array in arrays.values():
        array.flush()
    np.save(folder / "offsets.npy", offsets)
    about = {"stack": collection.stack, "collection": collection.settings()}
    (folder / "dataset.part").write_text(json.dumps(about, indent=1))
    (folder / "dataset.part").replace(folder / "dataset.json")
    shutil.rmtree(parts)


def _length(path: Path) -> int:
    with np.load(path) as file:
        return len(file["rewards"])


def _array(path: Path, shape: tuple[int, ...], dtype: Any) -> np.memmap:  # noqa: ANN401 - numpy's dtype-like
    path.parent.mkdir(exist_ok=True)
    return np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)


def _place(arrays: dict[str, np.memmap], episode: Episode, first: int, number: int) -> None:
    last = first + len(episode.rewards)
    arrays["rewards"][first:last], arrays["actions"][first:last] = episode.rewards, episode.actions
    arrays["terminated"][last - 1], arrays["truncated"][last - 1] = episode.terminated, not episode.terminated
    if "log_prob" in arrays:
        arrays["log_prob"][first:last] = episode.log_prob
    for key, value in episode.observations.items():
        arrays[f"observations/{key}"][first + number : last + number + 1] = value


def is_complete(folder: Path, collection: Collection) -> bool:
    """Whether the folder holds this very collection, finished."""
    path = folder / "dataset.json"
    if not path.exists():
        return False
    if json.loads(path.read_text()).get("collection") != collection.settings():
        raise BadInput(f"{folder} already holds another dataset. Choose another folder.")
    shutil.rmtree(folder / "parts", ignore_errors=True)
    return True
