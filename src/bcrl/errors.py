"""The one exception for the caller's mistakes: a single line that says what was wrong and what to do, as text
that a terminal shows and does not obey.
"""

import difflib
import re
from collections.abc import Iterable


class BadInput(ValueError):
    """Bad data, a bad policy or a bad argument.

    The command line prints it as one line and exits with code 2.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(" ".join(message.split())))


class Gaps(BadInput):
    """Everything that is wrong with a table, told at once; `found` has one sentence each."""

    def __init__(self, place: str, found: Iterable[str]) -> None:
        self.found = [f"{text}." for text in found]
        many = f" ({len(self.found)} gaps)" if len(self.found) > 1 else ""
        super().__init__(f"{place}{many}: {' '.join(self.found)}")


class Guess(UserWarning):
    """What a reader guessed or changed, said aloud; `Dataset.notes` keeps it."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint to append to a message about an unknown name: the nearest known one, or all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(names)}."


def in_shell(text: str) -> str:
    """A message with the options as a command line takes them: `missing='mean'` becomes `--missing mean`."""
    said = re.sub(r"\b(missing|ends)='(\w+)'", r"--\1 \2", text)
    return re.sub(
        r"\bcolumns=(\{[^{}]*\})", lambda found: f"--columns '{found[1].replace(chr(39), chr(34))}'", said
    )


def printable(text: object) -> str:
    """Text for one line of a terminal: whatever a terminal would obey or hide is shown as an escape.

    Keys, headers, names and paths come from others. An escape sequence among them could clear the screen or
    paint a verdict; a bidi control could turn a line around; half a character cannot be printed at all.
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
