"""What the doctor says: what is odd, where it is, and what to do about it."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Bearing:
    """How a finding bears on the value, so that it is among the estimate's reasons.

    Attributes:
        name: of the check that it becomes.
        verdict: the best that an estimate can get beside it.
        log_prob: it bears only on methods that read the log's `log_prob`.
        beyond: it bears only on what is earned after this many steps.
    """

    name: str
    verdict: Literal["caution", "distrust"] = "caution"
    log_prob: bool = False
    beyond: int = 0


@dataclass(frozen=True)
class Finding:
    """One finding.

    An error stops every evaluation; a warning can spoil one; a note is information.

    Attributes:
        severity: error, warning or note.
        what: what is odd.
        where: the place in the data.
        do: what to do about it.
        bears: how it bears on the value; None where it does not.
        policy: the name of the policy that it is about; None where it is about the log.
    """

    severity: Severity
    what: str
    where: str
    do: str
    bears: Bearing | None = None
    policy: str | None = None
