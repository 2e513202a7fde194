"""Numbers and verdicts in words a person reads: rounded to what is known, with proper signs and powers."""

import math

from bcrl.comparison import Choice, Difference
from bcrl.display import decimals_of as decimals_of
from bcrl.display import mantissa
from bcrl.display import number as number
from bcrl.display import power as power
from bcrl.estimate import DISTRUST_WIDTH, TRUST_WIDTH, Estimate, Interval, Status, Verdict

VERDICT_WORDS: dict[Verdict, str] = {"trust": "trust", "caution": "caution", "distrust": "do not trust"}
VERDICT_SENTENCES: dict[Verdict, str] = {
    "trust": "You may believe it.",
    "caution": "Take it with caution.",
    "distrust": "Do not believe it.",
}
# The rule of the verdict in words, from the numbers that the code reads.
WIDTH_RULES: dict[Verdict, str] = {
    "trust": f"trust up to {100 * TRUST_WIDTH:g}%",
    "caution": f"caution between {100 * TRUST_WIDTH:g} and {100 * DISTRUST_WIDTH:g}%",
    "distrust": f"distrust above {100 * DISTRUST_WIDTH:g}%",
}


def half_width(interval: Interval | None) -> float | None:
    return None if interval is None else (interval.high - interval.low) / 2


def interval_text(interval: Interval | None) -> str:
    """``57.9 to 64.8``, or nothing."""
    if interval is None:
        return ""
    largest = max(abs(interval.low), abs(interval.high))
    if math.isfinite(largest) and largest >= 1e6:
        exponent = math.floor(math.log10(largest))
        return (
            f"({mantissa(interval.low, exponent)} to {mantissa(interval.high, exponent)}) × {power(exponent)}"
        )
    decimals = decimals_of(half_width(interval))
    return f"{number(interval.low, decimals)} to {number(interval.high, decimals)}"


def value_text(estimate: Estimate) -> str:
    """The value with as many decimals as its interval supports; without a value, how the method ended."""
    if not math.isfinite(estimate.value) and estimate.status in (Status.DIVERGED, Status.DEGENERATE):
        return estimate.status.value
    return number(estimate.value, decimals_of(half_width(widest(estimate))))


def widest(estimate: Estimate) -> Interval | None:
    """The honest interval where there is a budget, else that of sampling."""
    return estimate.interval if estimate.budget is None else estimate.budget.honest


def width_sentence(estimate: Estimate) -> str:
    """The verdict explained by the honest interval's width; empty without a budget."""
    if estimate.budget is None:
        return ""
    own = estimate.budget.verdict(estimate.value)
    text = (
        f"The honest interval reaches {share(estimate.budget.width(estimate.value))} of the scale to either "
        f"side: {WIDTH_RULES[own]}"
    )
    if estimate.verdict == own:
        return text + "."
    if estimate.status in (Status.DIVERGED, Status.DEGENERATE):
        return text + ", but the computation did not end well."
    return text + ", but the log has a fault that speaks against it."


def decision_sentence(difference: Difference, than: str) -> str:
    """Better or worse than something, by how much, and how sure; empty without a decision."""
    if difference.decision is None:
        return ""
    ends = difference.honest
    if ends is None or difference.probability is None:
        return f"Cannot tell whether it is better than {than}: this value decides nothing."
    decimals = decimals_of(half_width(ends))
    if difference.decision == "cannot tell":
        return (
            f"Cannot tell whether it is better than {than}: the difference of "
            f"{signed(difference.value, decimals)} may be anything from {signed(ends.low, decimals)} to "
            f"{signed(ends.high, decimals)}{sureness_of_decision(difference)}."
        )
    near, far = sorted((abs(ends.low), abs(ends.high)))
    return (
        f"{difference.decision.capitalize()} than {than} by {number(abs(difference.value), decimals)} "
        f"({number(near, decimals)} to {number(far, decimals)}){sureness_of_decision(difference)}."
    )


def sureness_of_decision(difference: Difference) -> str:
    """What follows the decision: its probability, or that of being better where nothing was decided."""
    if difference.probability is None:
        return ""
    if difference.decision == "cannot tell":
        return f"; better with probability {percent(difference.probability)}"
    right = difference.probability if difference.decision == "better" else 1.0 - difference.probability
    return f" with probability {percent(right)}"


def choice_sentence(choice: Choice, of: int) -> str:
    """What the winner is worth, after having been chosen."""
    decimals = decimals_of(choice.value - choice.lower_bound)
    return (
        f"Highest of {of} policies; corrected for having been chosen: {number(choice.value, decimals)}, and "
        f"at least {number(choice.lower_bound, decimals)}."
    )


def share(width: float) -> str:
    """A share that may be above one, in whole percent."""
    if not math.isfinite(width):
        return "far more than 100%"
    return "less than 1%" if width < 0.005 else f"{100 * width:,.0f}%"


def known(value: float | None) -> bool:
    """Whether there is a number at all."""
    return value is not None and not math.isnan(value)


def signed(value: float, decimals: int | None = None) -> str:
    """A difference with its sign in front."""
    return f"+{number(value, decimals)}" if value > 0 else number(value, decimals)


def percent(share: float | None) -> str:
    """A probability or share as a percentage that never claims certainty it does not have."""
    if share is None or math.isnan(share):
        return "–"
    if share > 0.999:
        return "> 99.9%"
    if share < 0.001:
        return "< 0.1%"
    return f"{100 * share:.1f}%" if share > 0.99 or share < 0.01 else f"{100 * share:.0f}%"


def level_text(interval: Interval) -> str:
    """The level that an interval promises, e.g. ``95%``."""
    return f"{100 * interval.level:g}%"


def title(name: str) -> str:
    """A machine name as a reader sees it: ``spectral_radius`` becomes ``Spectral radius``."""
    plain = name.replace("_", " ")
    return plain[:1].upper() + plain[1:]


def seconds(value: float) -> str:
    """A duration."""
    if value < 60 or not math.isfinite(value):
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
