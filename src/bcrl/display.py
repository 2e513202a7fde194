"""Answers as a person sees them in Python: a line, a small HTML table, a pandas table, a picture."""

import html as escaping
import math
from collections.abc import Sequence
from typing import Any

from bcrl.errors import BadInput

Answer = Any  # an Estimate, which imports this file
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_COLOUR = {"trust": "#1a7f4b", "caution": "#b7791f", "distrust": "#c0392b"}


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
        front = mantissa(value, exponent)
        return power(exponent) if front == "1" else f"{front} × {power(exponent)}"
    if decimals is not None:
        text = f"{value:,.{decimals}f}"
    else:
        text = f"{value:,.{0 if size >= 1000 else 1 if size >= 10 else 2 if size >= 1 else 3}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", "−") if float(text.replace(",", "")) != 0 else text.removeprefix("-")


def power(exponent: int) -> str:
    """A power of ten, e.g. ``10⁻⁶``."""
    return f"10{str(exponent).translate(_SUPERSCRIPT)}"


def mantissa(value: float, exponent: int) -> str:
    """The number before a power of ten."""
    return f"{value / 10.0 ** max(exponent, -300):.1f}".removesuffix(".0").replace("-", "−")


def decimals_of(error: float | None) -> int | None:
    """Decimals that show two or more significant digits of an error (a half-width); None without an error."""
    if error is None or not math.isfinite(error) or error <= 0:
        return None
    return 1 if 10 <= error < 100 else min(max(1 - math.floor(math.log10(error)), 0), 4)


def ends_of(interval: Any) -> str:  # noqa: ANN401 - an Interval
    """``57.9 to 64.8``, with a plain minus: for terminals and scripts."""
    decimals = decimals_of((interval.high - interval.low) / 2.0)
    return f"{number(interval.low, decimals)} to {number(interval.high, decimals)}".replace("−", "-")


def value_of(estimate: Answer) -> str:
    """The value with as many decimals as its interval supports, or how the computation ended."""
    around = widest(estimate)
    if not math.isfinite(estimate.value):
        return str(estimate.status.value)
    decimals = None if around is None else decimals_of((around.high - around.low) / 2.0)
    return number(estimate.value, decimals).replace("−", "-")


def widest(estimate: Answer) -> Any:  # noqa: ANN401 - an Interval
    """The honest interval where there is a budget, else that of sampling."""
    return estimate.interval if estimate.budget is None else estimate.budget.honest


def line_of(estimate: Answer, before: str = "") -> str:
    """Value, widest interval, verdict and method on one line."""
    around = widest(estimate)
    ends = "" if around is None else f" ({ends_of(around)})"
    by = "" if before else f", {estimate.method}"
    return f"{before}{value_of(estimate)}{ends}, {estimate.verdict}{by}"


def row_of(estimate: Answer, **names: str) -> dict[str, Any]:
    """An estimate as a row of a table."""
    honest = None if estimate.budget is None else estimate.budget.honest
    sampling = estimate.interval
    return {
        **({"method": estimate.method} | names if names else {"method": estimate.method}),
        "value": estimate.value,
        "honest low": None if honest is None else honest.low,
        "honest high": None if honest is None else honest.high,
        "chance low": None if sampling is None else sampling.low,
        "chance high": None if sampling is None else sampling.high,
        "verdict": estimate.verdict,
        "reason": next(iter(estimate.reasons), ""),
    }


def frame(rows: Sequence[dict[str, Any]]) -> Any:  # noqa: ANN401 - a pandas table
    """Rows as a pandas table."""
    try:
        import pandas
    except ImportError as error:
        raise BadInput("to_frame needs pandas: pip install pandas. Or take to_json().") from error
    first = [name for name in ("policy", "method") if name in rows[0]]
    order = [*first, *(name for name in rows[0] if name not in first)]
    return pandas.DataFrame(list(rows))[order]


def html(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as a small table for a notebook."""
    names = [name for name in ("policy", "method") if name in rows[0]]
    head = "".join(f"<th>{name}</th>" for name in (*names, "value", "interval", "verdict", "why"))
    lines = []
    for row in rows:
        kind = "honest" if row["honest low"] is not None else "chance"
        low, high = row[f"{kind} low"], row[f"{kind} high"]
        decimals = None if low is None else decimals_of((high - low) / 2.0)
        ends = "" if low is None else f"{number(low, decimals)} to {number(high, decimals)}"
        struck = "s" if row["verdict"] == "distrust" else "b"
        cells = [
            *(escaping.escape(str(row[name])) for name in names),
            f"<{struck}>{number(row['value'], decimals)}</{struck}>",
            ends,
            f"<span style='color:{_COLOUR[row['verdict']]}'>{row['verdict']}</span>",
            escaping.escape(str(row["reason"])),
        ]
        lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def draw(rows: Sequence[tuple[str, Answer]], ax: Any = None, logged: Answer | None = None) -> Any:  # noqa: ANN401
    """A dot and its intervals a row: the honest one thin, that of chance alone thick."""
    from matplotlib import pyplot

    if ax is None:
        _, ax = pyplot.subplots(figsize=(7.0, 0.8 + 0.45 * len(rows)), layout="constrained")
    for place, (_, estimate) in enumerate(rows):
        colour = _COLOUR[estimate.verdict]
        honest = None if estimate.budget is None else estimate.budget.honest
        for interval, width in ((honest, 1.5), (estimate.interval, 4.5)):
            if interval is not None and math.isfinite(interval.low) and math.isfinite(interval.high):
                ax.plot([interval.low, interval.high], [place, place], color=colour, linewidth=width)
        if math.isfinite(estimate.value):
            ax.plot([estimate.value], [place], marker="o", color=colour, markeredgecolor="white")
    if logged is not None:
        ax.axvline(logged.value, color="grey", linestyle="--", linewidth=1.0)
    ax.set_yticks(range(len(rows)), [f"{name} ({estimate.verdict})" for name, estimate in rows])
    ax.invert_yaxis()
    ax.set_xlabel("value, in the reward's own unit" + ("; dashed: logged policy" if logged else ""))
    return ax
