"""Jobs side by side, each in a process of its own with one thread; what they tell is shown by this one."""

import multiprocessing
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from multiprocessing.queues import SimpleQueue
from typing import Any

_PATIENCE = 0.2  # seconds between two looks at what the jobs tell
_told: "SimpleQueue[Any] | None" = None  # of a worker process


def in_processes(
    job: Callable[..., None], calls: Sequence[tuple[Any, ...]], show: Callable[[Mapping[str, Any]], None]
) -> None:
    """Call `job(*call, show)` for every call at once; the first failure stops all and is raised here."""
    from bcrl_bench.collect import one_thread

    context = multiprocessing.get_context("spawn")  # EGL and BLAS do not survive a fork
    told: SimpleQueue[Any] = context.SimpleQueue()  # written at once, so that no last word is lost
    with (
        one_thread(),
        ProcessPoolExecutor(len(calls), mp_context=context, initializer=_begin, initargs=(told,)) as pool,
    ):
        futures = [pool.submit(_work, job, call) for call in calls]
        try:
            _follow(futures, told, show)
        except BaseException:
            for process in list(pool._processes.values()):  # a job of minutes would be waited for otherwise
                process.terminate()
            raise


def _follow(
    futures: Sequence["Future[None]"], told: "SimpleQueue[Any]", show: Callable[[Mapping[str, Any]], None]
) -> None:
    """Show what is told until all are done; raises what the first failure raised, with its traceback."""
    left: set[Future[None]] = set(futures)
    while left:
        done, left = wait(left, timeout=_PATIENCE, return_when=FIRST_EXCEPTION)
        _drain(told, show)
        for future in done:
            future.result()


def _drain(told: "SimpleQueue[Any]", show: Callable[[Mapping[str, Any]], None]) -> None:
    while not told.empty():
        show(told.get())


def _begin(told: "SimpleQueue[Any]") -> None:
    from bcrl_bench.collect import leave_with_parent

    global _told
    _told = told
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is answered once, by the parent
    leave_with_parent()


def _work(job: Callable[..., None], call: tuple[Any, ...]) -> None:
    assert _told is not None
    job(*call, _told.put)
