"""Ends of episodes that nobody marked: what the user says they are, and the reward that goes with them.

A table with an `episode` column often has the outcome in an episode's last row and no word on whether the
world ended there. Both guesses can ruin the value, so there is none.
"""

from typing import get_args

import numpy as np
from numpy.typing import NDArray

from bcrl.data.dataset import Array, Ends
from bcrl.errors import BadInput

Flags = NDArray[np.bool_]
# A dropped row that carries this many times the usual |reward| is no step like others.
_OUTCOME = 3.0


def answered(
    answer: Ends | None, ends: Flags, terminated: Flags, truncated: Flags, rewards: Array, *, labelled: bool
) -> tuple[Flags, Flags]:
    """`terminated` as the answer has it, and the last rows that nobody marked.

    A log without episode labels that marks its other ends may stop in the middle of its last episode: that
    is no question.
    """
    if answer is not None and answer not in get_args(Ends):
        raise BadInput(f"ends is {answer!r}; expected 'terminated', 'truncated' or 'drop'.")
    unmarked = ends & ~terminated & ~truncated
    told = labelled or not (terminated | truncated).any()
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


def lost_reward(rewards: Array, keep: Flags, unmarked: Flags) -> float:
    """Sum of |reward| over dropped rows, where their ends were unmarked or they look like outcomes; else 0.

    Args:
        rewards: of all rows.
        keep: rows that stay.
        unmarked: last rows that nobody marked.
    """
    size = np.abs(rewards.astype(np.float64))
    lost, rest = size[~keep], size[keep]
    outcome = len(lost) > 0 and lost.mean() > _OUTCOME * rest.mean()
    counted = ~keep if outcome else ~keep & unmarked
    return float(size[counted].sum())
