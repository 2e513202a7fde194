"""How long a policy may take to answer: a call that takes longer is ended, and said so in one line.

Python code is ended by an alarm between two of its steps (`answering` of policy.py), which only the main
thread of a process can have. ONNX graphs, which run outside Python, are told to stop, in any thread.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bcrl.errors import BadInput

# Seconds for one call, which asks about some thousand observations.
PATIENCE = 300.0


def too_slow(seconds: float) -> BadInput:
    """The error of a call that was ended."""
    return BadInput(
        f"The policy had not answered after {seconds:g} seconds; give it more time with seconds=... "
        "(--policy-seconds), or is it caught in a loop?"
    )


@contextmanager
def telling(stop: Callable[[], None], seconds: float) -> Iterator[Callable[[], bool]]:
    """Call `stop` where the block takes longer; what it gives says whether that was done."""
    told = threading.Event()

    def late() -> None:
        told.set()
        stop()

    timer = threading.Timer(seconds, late)
    timer.daemon = True
    timer.start()
    try:
        yield told.is_set
    finally:
        timer.cancel()
