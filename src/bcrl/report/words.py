"""Numbers and verdicts in words a person reads: rounded to what is known, with proper signs and powers."""

import math

from bcrl.estimate import Estimate, Interval, Status, Verdict

VERDICT_WORDS: dict[Verdict, str] = {"trust": "trust", "caution": "caution", "distrust": "do not trust"}
VERDICT_SENTENCES: dict[Verdict, str] = {
    "trust": "You may believe it.",
    "caution": "Take it with caution.",
    "distrust": "Do not believe it.",
}
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float | None, decimals: int | None = None) -> str:
    """A number for a reader: about three significant digits, powers of ten beyond a million.

    Args:
        value: the number; None is a dash.
        decimals: decimals to print; None chooses by the number's size and drops trailing zeros.
    """
    if value is None:
        return "–"
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if size >= 1e6 or 0 < size < 1e-3:
        exponent = math.floor(math.log10(size))
        mantissa = _mantissa(value, exponent)
        return power(exponent) if mantissa == "1" else f"{mantissa} × {power(exponent)}"
    if decimals is not None:
        text = f"{value:,.{decimals}f}"
    else:
        text = f"{value:,.{0 if size >= 1000 else 1 if size >= 10 else 2 if size >= 1 else 3}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", "−") if float(text.replace(",", "")) != 0 else text.removeprefix("-")


def power(exponent: int) -> str:
    """A power of ten, e.g. ``10⁻⁶``."""
    return f"10{str(exponent).translate(_SUPERSCRIPT)}"


def _mantissa(value: float, exponent: int) -> str:
    return f"{value / 10.0 ** max(exponent, -300):.1f}".removesuffix(".0").replace("-", "−")


def decimals_of(error: float | None) -> int | None:
    """Decimals that show two or more significant digits of an error (a half-width); None without an error."""
    if error is None or not math.isfinite(error) or error <= 0:
        return None
    return 1 if 10 <= error < 100 else min(max(1 - math.floor(math.log10(error)), 0), 4)


def half_width(interval: Interval | None) -> float | None:
    return None if interval is None else (interval.high - interval.low) / 2


def interval_text(interval: Interval | None) -> str:
    """``[57.9, 64.8]``, or nothing."""
    if interval is None:
        return ""
    largest = max(abs(interval.low), abs(interval.high))
    if math.isfinite(largest) and largest >= 1e6:
        exponent = math.floor(math.log10(largest))
        return (
            f"[{_mantissa(interval.low, exponent)}, {_mantissa(interval.high, exponent)}] × {power(exponent)}"
        )
    decimals = decimals_of(half_width(interval))
    return f"[{number(interval.low, decimals)}, {number(interval.high, decimals)}]"


def value_text(estimate: Estimate) -> str:
    """The value with as many decimals as its interval supports; without a value, how the method ended."""
    if not math.isfinite(estimate.value) and estimate.status in (Status.DIVERGED, Status.DEGENERATE):
        return estimate.status.value
    return number(estimate.value, decimals_of(half_width(estimate.interval)))


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
        return "> 99.9 %"
    if share < 0.001:
        return "< 0.1 %"
    return f"{100 * share:.1f} %" if share > 0.99 or share < 0.01 else f"{100 * share:.0f} %"


def level_text(interval: Interval) -> str:
    """The level that an interval promises, e.g. ``95 %``."""
    return f"{100 * interval.level:g} %"


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
