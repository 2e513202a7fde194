"""An answer where LSPE's plain iteration has none: the stand-ins of linear/fallback.py, on part of a log."""

import numpy as np

from bcrl.estimate import FloatArray, Status
from bcrl.linear.fallback import Evidence, Fallback, Range, fall_back
from bcrl.linear.lspe import LSPESolution
from bcrl.linear.moments import Moments
from bcrl.policies.policy import TargetActions
from bcrl.representations.features import Encoded, constant_feature

_PROBES = 2000


def steadied(
    solution: LSPESolution,
    encoded: Encoded,
    actions: TargetActions,
    start_features: FloatArray,
    blocks: list[Moments],
) -> tuple[LSPESolution, Fallback | None]:
    """A plausible stand-in for a solution that blows up, and which one it is.

    Where no stand-in is plausible, or a finite horizon ended the growth in time, the solution itself.

    Args:
        solution: of the plain iteration, which `blows_up`.
        encoded: the part of the log, seen through the representation.
        actions: the policy's actions at every observation row of the part.
        start_features: phi(s0, pi), shape (n0, d).
        blocks: moments of disjoint groups of units.
    """
    dataset = encoded.dataset
    allowed = Range.of(
        dataset.rewards,
        ends=bool(dataset.terminated.any()),
        discount=solution.discount,
        horizon=solution.horizon,
    )
    x0 = np.asarray(start_features.mean(axis=0))
    if solution.status is Status.HORIZON and allowed.outside(np.atleast_1d(x0 @ solution.theta)) == 0.0:
        return solution, None
    moments = sum(blocks[1:], start=blocks[0])
    rows = np.linspace(0, len(dataset) - 1, min(len(dataset), _PROBES)).astype(np.int64)
    probes = np.concatenate([encoded.logged(rows), encoded.policy(dataset.rows[rows] + 1, actions)])
    evidence = Evidence(
        moments=moments,
        halves=_halves(blocks),
        x0=x0,
        probes=probes,
        allowed=allowed,
        free=constant_feature(encoded),
    )
    found = fall_back(solution, evidence)
    return (solution, None) if found is None else found


def _halves(blocks: list[Moments]) -> tuple[Moments, ...]:
    if len(blocks) < 2:
        return ()
    return tuple(sum(half[1:], start=half[0]) for half in (blocks[0::2], blocks[1::2]))
