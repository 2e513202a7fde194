"""Processes side by side: one thread each, ended with their parent, one at a time where they would write the
same file.

`in_processes` runs jobs, each in a process of its own; what they tell is shown by this one.
"""

import contextlib
import fcntl
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_PATIENCE = 0.2  # seconds between two looks at what the jobs tell
_messages_out: "SimpleQueue[Any] | None" = None  # of a worker process


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Child processes made inside see one BLAS thread each: faster on few cores, and the same bits
    everywhere.
    """
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def exit_with_parent() -> None:
    """End this process with the one that began it, which cannot say so when it is killed: its workers would
    wait for work for ever, or go on writing where a second run begins.
    """

    def watch() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """One process of this machine at a time; the others wait. A folder that is there, or a file for the lock
    alone.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDONLY | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def in_processes(
    job: Callable[..., None], calls: Sequence[tuple[Any, ...]], show: Callable[[Mapping[str, Any]], None]
) -> None:
    """Call `job(*call, show)` for every call at once; the first failure stops all and is raised here."""
    context = multiprocessing.get_context("spawn")  # EGL and BLAS do not survive a fork
    messages: SimpleQueue[Any] = context.SimpleQueue()  # written at once, so that no last word is lost
    with (
        one_thread(),
        ProcessPoolExecutor(
            len(calls), mp_context=context, initializer=_start_worker, initargs=(messages,)
        ) as pool,
    ):
        futures = [pool.submit(_work, job, call) for call in calls]
        try:
            _follow(futures, messages, show)
        except BaseException:
            for process in list(pool._processes.values()):  # a job of minutes would be waited for otherwise
                process.terminate()
            raise


def _follow(
    futures: Sequence["Future[None]"], messages: "SimpleQueue[Any]", show: Callable[[Mapping[str, Any]], None]
) -> None:
    """Show messages until all are done; raises what the first failure raised, with its traceback."""
    left: set[Future[None]] = set(futures)
    while left:
        done, left = wait(left, timeout=_PATIENCE, return_when=FIRST_EXCEPTION)
        _drain(messages, show)
        for future in done:
            future.result()


def _drain(messages: "SimpleQueue[Any]", show: Callable[[Mapping[str, Any]], None]) -> None:
    while not messages.empty():
        show(messages.get())


def _start_worker(messages: "SimpleQueue[Any]") -> None:
    global _messages_out
    _messages_out = messages
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is answered once, by the parent
    exit_with_parent()


def _work(job: Callable[..., None], call: tuple[Any, ...]) -> None:
    assert _messages_out is not None
    job(*call, _messages_out.put)
