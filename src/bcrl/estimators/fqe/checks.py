"""Reasons to believe or to doubt an estimate by fitted Q-evaluation."""

import math
from collections.abc import Mapping

from bcrl.estimate import Check, Status, Verdict
from bcrl.estimators.fqe.network import Scale
from bcrl.inference import checks


def fqe_checks(
    status: Status, value: float, error: float | None, stats: Mapping[str, float], scale: Scale
) -> tuple[Check, ...]:
    """All that apply.

    Args:
        status: how training ended.
        value: of the policy.
        error: its standard error; None where there is none.
        stats: numbers of training and audits, those of `read_out`.
        scale: the reward's unit.
    """
    made = [_flat(status, stats["drift"], int(stats["steps"])), _possible(value, scale.limit)]
    if "clipped" in stats:
        made.append(_clipped(stats["clipped"]))
    if stats["members"] > 1:
        made += [checks.precision(error, value), checks.enough_units(int(stats["units"]))]
    if "action_support" in stats:
        made.append(checks.action_support_anywhere(stats["action_support"]))
        if scale.horizon is None:
            bound = scale.longest * stats["predictable_td_error"]
            made.append(checks.bellman_error(bound, value, stats["audit_rows"]))
    return tuple(made)


def _flat(status: Status, drift: float, steps: int) -> Check:
    verdict: Verdict = "distrust"
    meaning = f"Training blew up after {steps} steps: this data and this network do not contract."
    if status in (Status.CONVERGED, Status.HORIZON):
        verdict = "trust"
        meaning = (
            f"The value is flat after {steps} steps: it moved by {drift:.1%} over the last half of training."
        )
    elif status is Status.LIMIT:
        verdict = "caution"
        # With few points on the curve there is no drift yet.
        moved = (
            f"while the value still moved by {drift:.1%}"
            if math.isfinite(drift)
            else "before it could be seen whether the value had stopped moving"
        )
        meaning = f"The limit of {steps} steps was reached {moved}: raise `steps`."
    return Check("flat", drift, None, verdict, meaning)


def _possible(value: float, limit: float) -> Check:
    relative = abs(value) / limit if limit > 0.0 else 0.0 if value == 0.0 else math.inf
    verdict: Verdict = "trust" if relative <= 1.0 else "distrust"
    meaning = f"The value is {relative:.0%} of the largest that the logged rewards allow" + (
        "." if verdict == "trust" else ": no policy can earn that."
    )
    return Check("possible value", relative, 1.0, verdict, meaning)


def _clipped(share: float) -> Check:
    verdict = checks.graded(share, 0.01, 0.2)
    meaning = f"{share:.1%} of the regression targets were clipped" + (
        "." if verdict == "trust" else ": clipping can hide a divergence."
    )
    return Check("clipped targets", share, 0.01, verdict, meaning)
