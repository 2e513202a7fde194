"""The one exception for the caller's mistakes: a single line that says what was wrong and what to do."""

import difflib
from collections.abc import Iterable

from bcrl.printing import printable


class BadInput(ValueError):
    """Bad data, a bad policy or a bad argument.

    The command line prints it as one line and exits with code 2.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(" ".join(message.split())))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint to append to a message about an unknown name: the nearest known one, or all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(names)}."
