"""Reasons to believe or to doubt an anchored estimate."""

import math
from collections.abc import Mapping

from bcrl.estimate import Check, Verdict
from bcrl.inference import checks
from bcrl.policies.policy import DiscretePolicy, StochasticPolicy
from bcrl.question import Question, Target


def checks_of(
    stats: Mapping[str, float], value: float, error: float, target: Target, question: Question
) -> tuple[Check, ...]:
    """All of them; `stats` as in docs/methods/anchored.md."""
    made = [
        _gain(stats["gain"], stats["gain_first_order"], value),
        checks.effective_share(stats["effective_share"], stats["effective_units"]),
        checks.precision(error, value),
        checks.enough_units(int(stats["units"])),
    ]
    if not math.isnan(stats["action_support"]):
        steps = 1.0 / (1.0 - question.discount)
        bound = steps * stats["predictable_td_error"] / math.sqrt(max(stats["effective_share"], 1e-12))
        made.append(checks.action_support(stats["action_support"]))
        made.append(checks.bellman_error(bound, value, stats["audit_rows"]))
    if stats["tail_share"] > 0.0:
        made.append(_tail(stats["tail_share"]))
    if stats["bootstrapped"] > 0.0:
        made.append(_mixed())
    if "self_check_gap" in stats:
        made.append(checks.self_check(*(stats[f"self_check_{name}"] for name in ("gap", "error", "scale"))))
    if not question.dataset.discrete and not isinstance(target.policy, StochasticPolicy | DiscretePolicy):
        made.append(_smoothed())
    return tuple(made)


def _gain(gain: float, first_order: float, value: float) -> Check:
    """How much of the value is not the log's own, and how much of that depends on where the policy goes."""
    share = abs(gain) / abs(value) if value != 0.0 else math.inf if gain != 0.0 else 0.0
    moved = abs(gain - first_order) / abs(value) if value != 0.0 else math.inf if gain != first_order else 0.0
    verdict = checks.graded(moved, 0.1, 0.5)
    ending = "." if verdict == "trust" else ": that part rests on weights, not on returns."
    said = f"{share:.0%} of the value is a gain over the logged returns; {moved:.0%} of it comes from states "
    meaning = f"{said}that the policy visits more often than the log does{ending}"
    return Check("gain", moved, 0.1, verdict, meaning)


def _tail(share: float) -> Check:
    verdict: Verdict = "trust" if share <= 0.25 else "caution"
    meaning = (
        f"A share of {share:.0%} of the discounted future lies beyond records that were cut off and is "
        "bootstrapped on policy."
    )
    return Check("bootstrapped tail", share, 0.25, verdict, meaning)


def _mixed() -> Check:
    meaning = (
        "Several policies made this log and none of them enough of it for an anchor of its own: Q is that of "
        "their mixture, bootstrapped step by step, which may flatten the effect of actions."
    )
    return Check("one logging policy", 1.0, 0.0, "caution", meaning)


def _smoothed() -> Check:
    meaning = (
        "The policy is deterministic and actions are continuous, so no logged action is exactly the "
        "policy's: the interval is that of the smooth Q that was fitted, not of its values at single actions."
    )
    return Check("smoothed", None, None, "trust", meaning)
