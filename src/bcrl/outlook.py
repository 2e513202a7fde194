"""Answers as a person sees them in Python: a line, a small HTML table, a pandas table, a picture."""

import html as escaping
import math
from collections.abc import Sequence
from typing import Any

from bcrl.errors import BadInput

Answer = Any  # an Estimate, which imports this file
_COLOUR = {"trust": "#1a7f4b", "caution": "#b7791f", "distrust": "#c0392b"}


def line_of(estimate: Answer, before: str = "") -> str:
    """Value, widest interval, verdict and method on one line."""
    around = estimate.interval if estimate.budget is None else estimate.budget.honest
    value = f"{estimate.value:.4g}" if math.isfinite(estimate.value) else estimate.status.value
    ends = "" if around is None else f" ({around.low:.4g} to {around.high:.4g})"
    by = "" if before else f", {estimate.method}"
    return f"{before}{value}{ends}, {estimate.verdict}{by}"


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
        low = row["honest low"] if row["honest low"] is not None else row["chance low"]
        high = row["honest high"] if row["honest high"] is not None else row["chance high"]
        ends = "" if low is None else f"{low:.4g} to {high:.4g}"
        struck = "s" if row["verdict"] == "distrust" else "b"
        cells = [
            *(escaping.escape(str(row[name])) for name in names),
            f"<{struck}>{row['value']:.4g}</{struck}>",
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
