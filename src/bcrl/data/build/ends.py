"""Ends of episodes that nobody marked: what the user says they are, and the reward that goes with them.

A table with an `episode` column often has the outcome in an episode's last row and no word on whether the
world ended there. Both guesses can ruin the value, so there is none.
"""

from dataclasses import astuple, dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array, Ends
from bcrl.errors import BadInput

Flags = NDArray[np.bool_]
# A dropped row that carries this many times the usual |reward| is no step like others.
_OUTCOME = 3.0


@dataclass(frozen=True)
class Lost:
    """What went with the rows that were left out. Blocks of a log add up.

    Attributes:
        rows: how many were left out.
        size: their sum of |reward|.
        unmarked: the part of it at ends that nobody marked.
        kept_rows: rows that stayed.
        kept_size: their sum of |reward|.
    """

    rows: int = 0
    size: float = 0.0
    unmarked: float = 0.0
    kept_rows: int = 0
    kept_size: float = 0.0

    @classmethod
    def of(cls, rewards: Array, keep: Flags, unmarked: Flags) -> "Lost":
        """Args:
        rewards: of all rows.
        keep: rows that stay.
        unmarked: last rows that nobody marked.
        """
        size = np.abs(rewards.astype(np.float64))
        lost, rest, open_ends = size[~keep], size[keep], size[~keep & unmarked]
        return cls(len(lost), float(lost.sum()), float(open_ends.sum()), len(rest), float(rest.sum()))

    def __add__(self, other: "Lost") -> "Lost":
        return Lost(*[a + b for a, b in zip(astuple(self), astuple(other), strict=True)])

    @property
    def reward(self) -> float:
        """Sum of |reward| that counts as lost: at unmarked ends, or all where the rows look like outcomes."""
        if self.rows and self.kept_rows:
            outcome = self.size / self.rows > _OUTCOME * (self.kept_size / self.kept_rows)
        else:
            outcome = False
        return self.size if outcome else self.unmarked


def answered(
    answer: Ends | None,
    ends: Flags,
    terminated: Flags,
    truncated: Flags,
    rewards: Array,
    *,
    labelled: bool,
    marked: bool = False,
) -> tuple[Flags, Flags]:
    """`terminated` as the answer has it, and the last rows that nobody marked.

    A log without episode labels that marks its other ends may stop in the middle of its last episode: that
    is no question. `marked`: rows before these marked theirs.
    """
    if answer is not None and answer not in get_args(Ends):
        raise BadInput(f"ends is {answer!r}; expected 'terminated', 'truncated' or 'drop'.")
    unmarked = ends & ~terminated & ~truncated
    told = labelled or not (marked or (terminated | truncated).any())
    asked = np.flatnonzero(unmarked & (rewards != 0))
    if answer is None and told and len(asked):
        many = len(asked) > 1
        raise BadInput(
            f"{len(asked)} episode{'s' if many else ''} stop{'' if many else 's'} at a row that is marked "
            f"neither terminated nor truncated and carries a reward (row {asked[0]}: "
            f"{rewards[asked[0]]:g}): did the episode{'s' if many else ''} end here? Pass ends='terminated' "
            "(the world ended), 'truncated' (the record stops, the world goes on) or 'drop' (leave these "
            "rows out); on the command line --ends."
        )
    return (terminated | unmarked if answer == "terminated" else terminated), unmarked
