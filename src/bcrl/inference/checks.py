"""Reasons to believe or to doubt an estimate: LSPE's, those that several methods share, and the doctor's.

Numbers in, one `Check` out; the doctor's findings become checks in `doubts`. Thresholds and the evidence
for each are in results/verdict_history.md. They were set on exact worlds and on the development tasks
(walker-walk, cartpole-swingup); that page names three that were moved after cheetah-run's truth had been
seen.
"""

import math
from collections.abc import Iterable, Iterator

from bcrl.doctor import Finding
from bcrl.estimate import Check, Estimate, Status, Verdict

# Standard errors that a 95 % interval reaches to either side; the thresholds of `precision` were set with it.
_REACH = 1.96
# What is left of the discounted future when a finding about it no longer matters.
_NEGLIGIBLE = 0.02


def graded(value: float, trust_below: float, distrust_above: float) -> Verdict:
    """Trust up to the first threshold, distrust from the second, and where the number is not finite."""
    if not math.isfinite(value) or value >= distrust_above:
        return "distrust"
    return "trust" if value <= trust_below else "caution"


def contraction(radius: float, discount: float) -> Check:
    """Whether least squares policy evaluation contracts: the spectral radius of discount Sigma^-1 C."""
    limit = 0.5 * (1.0 + discount)
    verdict = graded(radius, limit, 1.0)
    meaning = {
        "trust": f"The iteration contracts (spectral radius {radius:.4g}).",
        "caution": f"The spectral radius {radius:.4g} is close to 1: "
        "errors in the features grow before they shrink.",
        "distrust": f"The spectral radius {radius:.4g} is 1 or more: "
        "the iteration blows up on these features and data.",
    }[verdict]
    return Check("contraction", radius, limit, verdict, meaning)


def stand_in(kind: str, size: float, radius: float) -> Check:
    """What answered in place of an iteration that blew up; never better than caution.

    Args:
        kind: lstd, ball or ridge (linear/fallback.py).
        size: W of the ball; the ridge in units of the features' mean square.
        radius: spectral radius of the plain iteration.
    """
    how = {
        "lstd": "the answer is its fixed point (LSTD)",
        "ball": f"the answer is the one with weights no longer than {size:.3g}, from what rewards allow",
        "ridge": f"the answer is the one with the smallest ridge that contracts, {size:.0e}",
    }[kind]
    # From here on the ridge, not the data, decides about most features.
    verdict: Verdict = "distrust" if kind == "ridge" and size > 0.1 else "caution"
    meaning = f"The plain iteration does not contract (spectral radius {radius:.4g}); {how}" + (
        "." if verdict == "caution" else ", which leaves little of the data's own word."
    )
    return Check("contraction", radius, 1.0, verdict, meaning)


def convergence(status: Status, iterations: int) -> Check:
    """Whether the iteration converged, or ran for the horizon."""
    verdict: Verdict = (
        "trust"
        if status in (Status.CONVERGED, Status.HORIZON)
        else "caution"
        if status is Status.LIMIT
        else "distrust"
    )
    return Check(
        "convergence", float(iterations), None, verdict, f"After {iterations} iterations: {status.meaning}"
    )


def bellman_error(bound: float, value: float, audit_rows: float) -> Check:
    """The predictable part of the TD errors, added up over the states the policy visits, against the value.

    An audit of few rows finds nothing even where there is an error, so it must have had ten rows or more for
    each of its inputs (`audit_rows`).
    """
    relative = bound / abs(value) if value != 0.0 else math.inf if bound > 0.0 else 0.0
    verdict = graded(relative, 0.25, 1.0)
    if verdict == "trust" and audit_rows < 10.0:
        meaning = (
            f"The audit for Bellman error learned from {audit_rows:.1f} transitions for each input: "
            "too few to find an error."
        )
        return Check("Bellman error", relative, 0.25, "caution", meaning)
    meaning = (
        f"Bellman error that an independent audit still finds could move the value by up to {relative:.0%}"
        + ("." if verdict == "trust" else ": the features are not complete enough for this policy.")
    )
    return Check("Bellman error", relative, 0.25, verdict, meaning)


def reward_fit(share: float, bellman: float) -> Check:
    """Share of the reward's variance that the features miss, judged by whether the audit found it to matter.

    Noise in the reward is missed too and does no harm; then the audit finds nothing predictable.

    Args:
        share: of the reward's variance; nan for a constant reward, which any features fit.
        bellman: value of the Bellman error check.
    """
    missed = 0.0 if math.isnan(share) else share
    verdict: Verdict = "trust" if missed <= 0.3 or bellman <= 0.2 else "distrust"
    meaning = f"The features miss {missed:.1%} of the reward's variance" + (
        ": the reward depends on something that they do not see."
        if verdict == "distrust"
        else ", and the audit finds only noise in what they miss."
        if missed > 0.3
        else "."
    )
    return Check("reward fit", missed, 0.3, verdict, meaning)


def possible(estimate: Estimate, low: float, high: float) -> Check | None:
    """Whether the value lies where no episode can bring it, by the log's rewards; None where it does not.

    Args:
        estimate: with its value and its interval.
        low, high: the least and the most that an episode can earn.
    """
    value, around = estimate.value, estimate.interval
    room = 0.02 * max(high - low, abs(low), abs(high))
    if not math.isfinite(value) or low - room <= value <= high + room:
        return None
    inside = around is not None and around.high >= low and around.low <= high
    meaning = (
        f"The value {value:.4g} lies outside of what any episode can earn by the rewards of this log, "
        f"{low:.4g} to {high:.4g}: no episode can earn it."
    )
    return Check(
        "possible value", value, high if value > high else low, "caution" if inside else "distrust", meaning
    )


def known_value(gap: float, half: float, scale: float) -> Check:
    """The value of the policy that made the log, against its own returns.

    Args:
        gap: between the two.
        half: half of their difference's interval.
        scale: size of the returns.
    """
    relative = gap / scale if scale > 0.0 else 0.0
    limit = max(0.05, 1.5 * half / scale if scale > 0.0 else 0.0)
    verdict = graded(relative, limit, 2.0 * limit)
    ending = "." if verdict == "trust" else ": the method misses the one value that is known."
    meaning = f"This policy made the log, and the value is off by {relative:.1%} from its own returns{ending}"
    return Check("logging policy", relative, limit, verdict, meaning)


def action_support(share: float) -> Check:
    """Share of the states the policy would visit at which the log holds actions like the policy's."""
    verdict: Verdict = "trust" if share >= 0.8 else "caution" if share >= 0.7 else "distrust"
    meaning = (
        f"At {share:.0%} of the states that the policy is expected to visit, "
        "the log holds actions like its own"
        + ("." if verdict == "trust" else ": elsewhere the value is a guess about actions nobody tried.")
    )
    return Check("action support", share, 0.8, verdict, meaning)


def action_support_anywhere(share: float) -> Check:
    """The same over all logged states, for methods that do not know which of them the policy would visit."""
    plain = action_support(share)
    meaning = f"At {share:.0%} of the logged states the log holds actions like the policy's" + (
        "." if plain.verdict == "trust" else ": elsewhere the value is a guess about actions nobody tried."
    )
    return Check(plain.name, plain.value, plain.threshold, plain.verdict, meaning)


def effective_share(share: float, units: float) -> Check:
    """How much of the data the estimate uses: (sum w)^2 / sum w^2 over the weights of transitions."""
    verdict: Verdict = "trust" if share >= 0.05 and units >= 10 else "caution" if units >= 5 else "distrust"
    meaning = f"The estimate rests on {share:.1%} of the transitions, as if on {units:.0f} episodes" + (
        "." if verdict == "trust" else ": few logged decisions resemble what the policy would do."
    )
    return Check("effective data", share, 0.05, verdict, meaning)


def self_check(gap: float, error: float, scale: float, *, learned_for_target: bool = False) -> Check:
    """The logging policy evaluated by the same features, against its own logged returns.

    Features that were learned for the target policy were not made for the logging policy, so a larger gap is
    allowed for them.
    """
    relative = abs(gap) / scale if scale > 0.0 else 0.0
    noise = 2.0 * error / scale if scale > 0.0 else 0.0
    limit = max(0.25 if learned_for_target else 0.1, noise)
    verdict: Verdict = "trust" if relative <= limit else "caution" if relative <= 0.5 + noise else "distrust"
    meaning = (
        f"On the logging policy, whose returns are known, the same features are wrong by {relative:.1%}"
        + ("." if verdict == "trust" else ": do not expect them to do better on a policy that nobody ran.")
    )
    return Check("self-check", relative, limit, verdict, meaning)


def precision(error: float | None, value: float) -> Check:
    """Width of the 95 % interval against the value; a lower `level` does not change the verdict."""
    relative = math.inf if error is None else _REACH * error / abs(value) if value != 0.0 else math.inf
    verdict: Verdict = (
        "trust" if relative <= 0.125 else "caution" if relative <= 0.5 or error is None else "distrust"
    )
    reach = (
        f"reaches {relative:.0%} of the value to either side"
        if relative < 10.0
        else "is far wider than the value"
    )
    ending = "." if verdict == "trust" else ": collect more episodes before you decide."
    meaning = (
        f"At 95 % the sampling error {reach}{ending}"
        if math.isfinite(relative)
        else "There is no interval around this value."
    )
    return Check("precision", relative, 0.125, verdict, meaning)


def enough_units(units: int) -> Check:
    """How many independent units the interval is computed from."""
    verdict: Verdict = "trust" if units >= 20 else "caution" if units >= 5 else "distrust"
    meaning = f"The interval is computed from {units} independent episodes or clusters" + (
        "." if verdict == "trust" else ", which are few: the interval itself is uncertain."
    )
    return Check("independent units", float(units), 20.0, verdict, meaning)


def bootstrap_agrees(ratio: float) -> Check:
    """Standard error from the block bootstrap over the one from influences."""
    verdict: Verdict = "trust" if 0.5 <= ratio <= 2.0 else "caution"
    meaning = f"The block bootstrap gives {ratio:.2f} times the analytic standard error" + (
        "." if verdict == "trust" else ": the interval's width is in doubt."
    )
    return Check("bootstrap agrees", ratio, 2.0, verdict, meaning)


def trainings(diverged: int, repeats: int) -> Check:
    """How many trainings of the same features on the same data, from other seeds, diverged."""
    meaning = (
        f"{diverged} of {repeats} trainings of the features diverged: "
        "the value depends on the random seed of the training."
    )
    return Check("trainings", float(diverged), 0.0, "trust" if diverged == 0 else "caution", meaning)


def stable_training(spread: float, first_try: float = 0.0) -> Check:
    """How much the value moved over the last half of training, relative to itself.

    A second training that is flat does not undo what the first one showed: `first_try` is how far the value
    moved in trainings that a steadier one replaced, 0 where there was none. If there was one, the verdict is
    caution at best.
    """
    verdict = graded(max(spread, first_try), 0.05, 0.15)
    meaning = f"Over the last half of training the value moved by {_share(spread)}"
    if first_try > 0.0:
        verdict = "caution" if verdict == "trust" else verdict
        meaning += (
            f", and by {_share(first_try)} in an earlier training that one with layer norm replaced: "
            "the data do not determine the value."
        )
    else:
        meaning += "." if verdict == "trust" else ": the features were still changing."
    return Check("stable training", max(spread, first_try), 0.05, verdict, meaning)


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


def _share(value: float) -> str:
    return f"{value:.1%}" if math.isfinite(value) else "an amount too large to measure"
