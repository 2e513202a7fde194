"""The grid: which cells are left, and running them on this machine's processes or on a Ray cluster.

Cells never write: the driver is the only writer, so a cell that ran twice because a machine died is written
once. Numbers depend on the number of threads, so every worker has one.
"""

import contextlib
import functools
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from bcrl_bench.experiments.cell import run_cell
from bcrl_bench.experiments.identity import cell_settings, same_settings
from bcrl_bench.experiments.profile import Experiment, Profile
from bcrl_bench.experiments.records import Records
from bcrl_bench.experiments.world import waiting_for
from bcrl_bench.processes import THREADS, exit_with_parent, one_thread
from bcrl_bench.repository import origin

RETRIES = 3  # machines of a Ray cluster that it may see die
Work = Callable[[Experiment], dict[str, Any]]
Outcome = tuple[Experiment, "dict[str, Any] | None", "str | None"]
Show = Callable[[Experiment, "dict[str, Any] | None", "str | None"], None]


@dataclass
class State:
    """Where every cell of a run stands."""

    todo: list[Experiment] = field(default_factory=list)
    done: list[Experiment] = field(default_factory=list)
    stale: list[Experiment] = field(default_factory=list)
    failed: list[Experiment] = field(default_factory=list)
    waiting: dict[Experiment, list[str]] = field(default_factory=dict)


def state_of(
    profile: Profile, records: Records, experiments: Iterable[Experiment], *, retry: bool = False
) -> State:
    """`sort_cells` for the cells of a profile."""
    settings, missing = functools.partial(cell_settings, profile), functools.partial(waiting_for, profile)
    return sort_cells(records, experiments, settings, missing=missing, retry=retry)


def sort_cells(
    records: Records,
    experiments: Iterable[Experiment],
    settings: Callable[[Experiment], Mapping[str, Any]],
    *,
    missing: Callable[[Experiment], list[str]] = lambda experiment: [],
    retry: bool = False,
) -> State:
    """Sort cells into finished, failed, made with other settings, waiting for a policy, and to be run.

    With `retry`, failed cells and those made with other settings are run again.
    """
    state = State()
    finished, failed = records.finished(), records.failed()
    for experiment in experiments:
        record = finished.get(experiment)
        lacks = missing(experiment)
        if lacks:
            state.waiting[experiment] = lacks
        elif record is not None and same_settings(record["settings"], settings(experiment)):
            state.done.append(experiment)
        elif record is not None and not retry:
            state.stale.append(experiment)
        elif record is None and experiment in failed and not retry:
            state.failed.append(experiment)
        else:
            state.todo.append(experiment)
    return state


def run_grid(
    profile: Profile,
    records: Records,
    todo: Sequence[Experiment],
    *,
    cache: Path,
    workers: int = 1,
    ray_address: str | None = None,
    show: Show = lambda *news: None,
) -> int:
    """`run_cells` for the cells of a profile."""
    work = functools.partial(run_cell, profile, cache=cache.resolve())
    command = f"bcrl benchmark run {profile.words}"
    return run_cells(work, command, records, todo, workers=workers, ray_address=ray_address, show=show)


def run_cells(
    work: Work,
    command: str,
    records: Records,
    todo: Sequence[Experiment],
    *,
    workers: int = 1,
    ray_address: str | None = None,
    show: Show = lambda *news: None,
) -> int:
    """Run cells in order and write each as it comes, with the command that makes it again once its line is
    deleted; how many failed.
    """
    made_by, failures = origin(), 0
    outcomes = run_local(work, todo, workers) if ray_address is None else run_ray(work, todo, ray_address)
    with contextlib.closing(outcomes):
        for experiment, record, error in outcomes:
            if record is not None:
                assert record["experiment"] == asdict(experiment)
                again = f"{command} --cells {experiment.name}"
                records.keep(experiment, {"command": again, **made_by, **record})
            else:
                failures += 1
                records.keep_failure(experiment, str(error))
            show(experiment, record, error)
    return failures


def run_local(work: Work, todo: Sequence[Experiment], workers: int) -> Generator[Outcome, None, None]:
    """On processes of this machine. A process that dies takes its cell with it, not the run.

    Nobody says whose process died, so all cells that were running are run again, one at a time: who dies
    then, died of itself.
    """
    queue = deque(todo)
    while queue:
        suspects = yield from _run_pool(work, queue, workers)
        for suspect in suspects:
            if (yield from _run_pool(work, deque([suspect]), 1)):
                yield (
                    suspect,
                    None,
                    "BrokenProcessPool: its process died twice, the second time alone. Out of memory?",
                )


def _run_pool(
    work: Work, queue: deque[Experiment], workers: int
) -> Generator[Outcome, None, list[Experiment]]:
    """Run a queue until it is empty or a process dies; gives the cells that were running then."""
    with one_thread(), ProcessPoolExecutor(workers, get_context("spawn"), _start_worker) as pool:
        running: dict[Future[dict[str, Any]], Experiment] = {}
        lost: list[Experiment] = []
        while running or (queue and not lost):
            # No more than can run: what has not begun is not lost with a broken pool.
            while queue and len(running) < workers and not lost:
                experiment = queue.popleft()
                running[pool.submit(work, experiment)] = experiment
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                experiment, error = running.pop(future), future.exception()
                if isinstance(error, BrokenProcessPool):
                    lost.append(experiment)
                elif error is None:
                    yield experiment, future.result(), None
                else:
                    yield experiment, None, "".join(traceback.format_exception(error))
    return lost


def run_ray(work: Work, todo: Sequence[Experiment], address: str) -> Generator[Outcome, None, None]:
    """On a Ray cluster, one CPU a cell. A cell whose machine died is run again elsewhere, by Ray itself."""
    import ray

    ray.init(address=address, log_to_driver=False, runtime_env={"env_vars": dict.fromkeys(THREADS, "1")})
    try:
        remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_pinned)
        running = {remote.remote(work, experiment): experiment for experiment in todo}
        while running:
            ready, _ = ray.wait(list(running), num_returns=1)
            experiment = running.pop(ready[0])
            try:
                outcome: Outcome = (experiment, ray.get(ready[0]), None)
            except ray.exceptions.RayError as error:
                outcome = (experiment, None, str(error))
            yield outcome
    finally:
        ray.shutdown()


def _start_worker() -> None:
    torch.set_num_threads(1)  # BLAS reads the environment
    exit_with_parent()


def _pinned(work: Work, experiment: Experiment) -> dict[str, Any]:
    torch.set_num_threads(1)
    return work(experiment)
