"""What the doctor says: what is odd, where it is, and what to do about it."""

from dataclasses import dataclass
from typing import Literal

from bcrl.data.dataset import Dataset

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One finding.

    An error stops every evaluation; a warning can spoil one; a note is information.
    """

    severity: Severity
    what: str
    where: str
    do: str


def step_place(dataset: Dataset, transition: int) -> str:
    """A transition by episode and row within it."""
    episode = int(dataset.episode_of[transition])
    return f"episode {episode}, row {transition - int(dataset.offsets[episode])} (transition {transition})"


def observation_place(dataset: Dataset, row: int) -> str:
    """An observation row by episode and row within it."""
    starts = dataset.start_rows
    episode = int(starts.searchsorted(row, side="right")) - 1
    return f"episode {episode}, observation {row - int(starts[episode])} (row {row})"
