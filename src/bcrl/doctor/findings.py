"""What the doctor says: what is odd, where it is, and what to do about it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from bcrl.data.dataset import Dataset
from bcrl.estimate import Check

Severity = Literal["error", "warning", "note"]
# What is left of the discounted future when a finding about it no longer matters.
_NEGLIGIBLE = 0.02


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


def doubts(
    findings: Iterable[Finding], policy: str, *, log_prob: bool, discount: float, horizon: int | None
) -> Iterator[Check]:
    """The findings that bear on the value of one policy, as checks.

    Args:
        findings: of the log and of all policies.
        policy: whose value it is.
        log_prob: whether the method reads the log's `log_prob`.
        discount, horizon: of the value.
    """
    for finding in findings:
        bears = finding.bears
        if bears is None or finding.policy not in (None, policy) or (bears.log_prob and not log_prob):
            continue
        if discount**bears.beyond < _NEGLIGIBLE or (horizon is not None and horizon <= bears.beyond):
            continue
        yield Check(bears.name, None, None, bears.verdict, f"{finding.what} {finding.do}")


def step_place(dataset: Dataset, transition: int) -> str:
    """A transition by episode and row within it."""
    episode = int(dataset.episode_of[transition])
    return f"episode {episode}, row {transition - int(dataset.offsets[episode])} (transition {transition})"


def observation_place(dataset: Dataset, row: int) -> str:
    """An observation row by episode and row within it."""
    starts = dataset.start_rows
    episode = int(starts.searchsorted(row, side="right")) - 1
    return f"episode {episode}, observation {row - int(starts[episode])} (row {row})"
