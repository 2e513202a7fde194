"""What the doctor says: what is odd, where it is, and what to do about it."""

from dataclasses import dataclass
from typing import Literal

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
