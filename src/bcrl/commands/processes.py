"""Jobs side by side, each in a process of its own with one thread; what they tell is shown by this one."""

import multiprocessing
import queue
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.queues import Queue
from typing import Any

from bcrl.errors import BadInput

_PATIENCE = 0.5  # seconds between two looks at whether a job is still alive
_DONE = "done"


def in_processes(
    job: Callable[..., None], calls: Sequence[tuple[Any, ...]], show: Callable[[Mapping[str, Any]], None]
) -> None:
    """Call `job(*call, show)` for every call at once; the first failure stops all and is raised here."""
    from bcrl.benchmark.collect import one_thread

    context = multiprocessing.get_context("spawn")  # EGL and BLAS do not survive a fork
    told: Queue[Any] = context.Queue()
    # daemons: they end with this process, except where that is killed outright, and then their files let them be run again
    with one_thread():
        workers = [context.Process(target=_work, args=(job, call, told), daemon=True) for call in calls]
        for worker in workers:
            worker.start()
    try:
        left = len(workers)
        while left:
            try:
                news = told.get(timeout=_PATIENCE)
            except queue.Empty:
                _all_well(workers)
                continue
            if news == _DONE:
                left -= 1
            elif isinstance(news, BaseException):
                raise news
            else:
                show(news)
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()


def _all_well(workers: Sequence[Any]) -> None:
    codes = [worker.exitcode for worker in workers]
    if any(code not in (None, 0) for code in codes) or None not in codes:
        raise BadInput(
            f"processes ended with codes {codes} (out of memory?); run the same command again to go on."
        )


def _work(job: Callable[..., None], call: tuple[Any, ...], told: "Queue[Any]") -> None:
    try:
        job(*call, told.put)
    except Exception as error:  # noqa: BLE001 - raised again where the user sees it
        told.put(error)
    else:
        told.put(_DONE)
