"""Collect a dataset from behaviours on a task, in several processes, straight into a dataset folder.

Each episode depends on the collection's seed and its own number only, and episodes are appended in order, so
a killed collection goes on where it stopped and ends in the same bytes, whatever the number of processes. A
few episodes are in memory at a time (10.6 MB each at 84 x 84), whatever the dataset's size.
"""

import hashlib
import multiprocessing
import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.data.storage.folder import HEADER, read_header
from bcrl.data.storage.writer import Writer
from bcrl.errors import BadInput
from bcrl_bench.processes import one_thread
from bcrl_bench.rollouts import Behaviour, Episode, check_fits, run_episode
from bcrl_bench.tasks import ControlTask, Rendering

BLOCK = 5  # episodes between two synced marks of progress: what a kill may cost


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

    def name_of(self, episode: int) -> str:
        """Name of the behaviour that runs this episode."""
        return self.sources[self.source_of(episode)].name

    def settings(self) -> dict[str, Any]:
        """What must match for a collection to be continued."""
        sources = [
            {"name": s.name, "share": s.share, "noise": s.behaviour.noise, "sampled": s.behaviour.sampled}
            | {"policy": fingerprint(s.behaviour.policy)}
            for s in self.sources
        ]
        fields = {"task": self.task, "episodes": self.episodes, "pixels": self.pixels, "stack": self.stack}
        fields |= {"rendering": self.rendering, "limit": self.limit, "seed": self.seed}
        labels = {} if len(sources) == 1 else {"labels": ["behaviour"]}
        return fields | {"sources": sources} | labels

    def reads_state(self) -> bool:
        """Whether no behaviour needs frames to act."""
        return all(getattr(source.behaviour.policy, "reads", "state") == "state" for source in self.sources)

    def make_task(self) -> ControlTask:
        """The environment that every episode runs in."""
        return ControlTask(self.task, pixels=self.pixels, rendering=self.rendering, limit=self.limit)


def fingerprint(policy: Any) -> str:  # noqa: ANN401 - any policy
    """Hash of a policy's weights: of its file, else of its tensors, else of its pickled bytes; `uniform` for
    none.
    """
    if policy is None:
        return "uniform"
    if getattr(policy, "digest", None) is not None:
        return str(policy.digest)
    data = policy.to_bytes() if hasattr(policy, "to_bytes") else pickle.dumps(policy)
    return hashlib.sha256(data).hexdigest()


class Worker:
    """Runs single episodes of a collection; one environment for each process."""

    current: "Worker"

    def __init__(self, collection: Collection) -> None:
        self.collection, self.task = collection, collection.make_task()
        for source in collection.sources:
            check_fits(self.task, source.behaviour)

    def run(self, episode: int) -> Episode:
        """Roll out one episode; it depends on the collection's seed and its own number only."""
        source = self.collection.sources[self.collection.source_of(episode)]
        return run_episode(self.task, source.behaviour, (self.collection.seed, episode))


def _start_worker(collection: Collection) -> None:
    Worker.current = Worker(collection)


def _run_one(episode: int) -> Episode:
    return Worker.current.run(episode)


def run_all(collection: Collection, numbers: range) -> Iterator[Episode]:
    """These episodes, in order, from as many processes as the collection asks for."""
    if collection.processes == 1:
        yield from map(Worker(collection).run, numbers)
        return
    context = multiprocessing.get_context("spawn")  # EGL and BLAS do not survive a fork
    with one_thread(), context.Pool(collection.processes, _start_worker, (collection,)) as pool:
        yield from pool.imap(_run_one, numbers)


def collect(
    collection: Collection, folder: Path, show: Callable[[dict[str, Any]], None] = lambda news: None
) -> Path:
    """Collect into `folder`; call again after an interruption to go on. Returns the dataset folder."""
    if not collection.sources or collection.episodes < 1 or any(s.share <= 0 for s in collection.sources):
        raise BadInput(
            "A collection needs at least one episode and one behaviour, each with a positive share."
        )
    if (folder / HEADER).exists():
        if read_header(folder).get("about") != collection.settings():
            raise BadInput(f"{folder} already holds another dataset. Choose another folder.")
        return folder
    Worker(
        replace(collection, pixels=None if collection.reads_state() else collection.pixels)
    )  # refuse early
    dense = all(source.behaviour.has_density for source in collection.sources)
    began = time.monotonic()
    with Writer(folder, stack=collection.stack, block=BLOCK, about=collection.settings()) as writer:
        first = writer.episodes
        for number, episode in enumerate(run_all(collection, range(first, collection.episodes)), start=first):
            # one behaviour needs no label, and its logs are the same as ever
            name = None if len(collection.sources) == 1 else collection.name_of(number)
            writer.append(_as_dict(episode, dense) | {"behaviour": name})
            rate = (writer.episodes - first) * collection.limit / (time.monotonic() - began)
            show({"stage": "collecting", "step": writer.episodes, "steps": collection.episodes, "rate": rate})
    return folder


def _as_dict(episode: Episode, dense: bool) -> dict[str, Any]:
    return {
        "observations": episode.observations,
        "actions": episode.actions,
        "rewards": episode.rewards,
        "terminated": episode.terminated,
        "truncated": not episode.terminated,
        "log_prob": episode.log_prob if dense else None,
    }
