"""The first words of the page and of the terminal: which one, how much better, may we believe it, what next.

The choice is among the values that may be believed. The highest number of all is not chosen where nobody
should believe it, and no policy is praised that is not known to beat what is done today.
"""

import math
from dataclasses import dataclass

from bcrl.comparison import Comparison, Decision
from bcrl.estimate import Estimate, Verdict
from bcrl.report.ranking import harmed, verdict_of
from bcrl.report.words import decimals_of, decision_sentence, half_width, percent, signed, value_text

# What can be done, before what can merely be said; each where it was asked for or fits.
_DOING = ("guarded", "trial", "bounds")
_TRY = (
    "Let it run on a few episodes beside today’s policy; bcrl trial says after each whether it earns what is "
    "promised here."
)


@dataclass(frozen=True)
class Opening:
    """What several policies come to.

    Attributes:
        headline: which one.
        policy: that policy; empty where none can be recommended.
        verdict: on its value.
        against: how much better than today.
        higher: about policies whose numbers stand higher and are not recommended; empty without them.
        following: what to do next.
    """

    headline: str
    policy: str
    verdict: Verdict
    against: str
    higher: str
    following: str


def opening(table: Comparison) -> Opening | None:
    """The answer about several policies, all by one method; None for a single policy."""
    if len(table.policies) < 2:
        return None
    method, order = table.ranking()
    order = [policy for policy in order if method in table.estimates[policy]]
    verdicts = {policy: verdict_of(table, policy, method) for policy in order}
    believed = [policy for policy in order if verdicts[policy] != "distrust"]
    if not believed:
        first = order[0]
        following = next_step(table, first, method)
        return Opening("None of these values may be believed", "", "distrust", "", "", following)
    better = [policy for policy in believed if _decision(table, policy, method) == "better"]
    policy = (better or believed)[0]
    return Opening(
        _headline(table, policy, method),
        policy,
        verdicts[policy],
        against_logged(table, policy, method, verdicts[policy]),
        _higher(order[: order.index(policy)], verdicts),
        next_step(table, policy, method),
    )


def against_logged(table: Comparison, policy: str, method: str, verdict: Verdict) -> str:
    """How much better than the logged policy, and how sure that is; empty where nothing can be said."""
    logged, difference = table.logged, table.differences.get(policy, {}).get(method)
    if logged is None or difference is None or not math.isfinite(difference.value):
        return ""
    if difference.decision is not None:
        return decision_sentence(difference, f"the logged policy’s {value_text(logged)}")
    # A probability beside a number that nobody should believe would only make it look credible.
    if verdict == "distrust":
        return ""
    decimals = decimals_of(half_width(difference.interval))
    text = f"{signed(difference.value, decimals)} against the logged policy’s {value_text(logged)}"
    if difference.probability_better is not None:
        text += f"; better with probability {percent(difference.probability_better)}"
    return text + "."


def next_step(table: Comparison, policy: str, method: str) -> str:
    """The one thing to do about a policy."""
    steps = {step.name: step.text for step in table.next_steps.get(policy, ())}
    for name in _DOING:
        if name in steps:
            return steps[name]
    estimate, decision = table.estimates[policy][method], _decision(table, policy, method)
    if verdict_of(table, policy, method) != "distrust" and decision in ("better", "worse"):
        return _TRY if decision == "better" else "Keep today’s policy."
    return _remedy(estimate)


def _remedy(estimate: Estimate) -> str:
    """What would make the largest part of the honest interval smaller."""
    entries = () if estimate.budget is None else estimate.budget.entries
    return entries[0].remedy if entries else "Log more episodes, or ask another method."


def _headline(table: Comparison, policy: str, method: str) -> str:
    decision, bad = _decision(table, policy, method), harmed(table, policy)
    if decision == "better":
        return f"{policy} is better than today’s policy" + (f", but worse for {bad}" if bad else "")
    if decision == "worse":
        return f"Keep today’s policy: even {policy} is worse"
    if decision == "cannot tell":
        return f"None of these is known to be better than today’s policy, not even {policy}"
    return f"{policy} has the highest value that may be believed"


def _higher(names: list[str], verdicts: dict[str, Verdict]) -> str:
    struck = [name for name in names if verdicts[name] == "distrust"]
    open_ = [name for name in names if verdicts[name] != "distrust"]
    texts = []
    if struck:
        texts.append(f"{', '.join(struck)}: a higher number, which nobody should believe.")
    if open_:
        texts.append(f"{', '.join(open_)}: a higher number, but not known to be better than today’s.")
    return " ".join(texts)


def _decision(table: Comparison, policy: str, method: str) -> Decision | None:
    difference = table.differences.get(policy, {}).get(method)
    return None if difference is None else difference.decision
