"""results/proving.md and results/proving.json from the records: errors, and whether trust was earned.

Relative error: |V^ - V| / max(|V|, S), S the log's mean discounted sum of |reward|. Right: at most 10 %. A
missing value (diverged, say) counts as an error without bound; questions that the method refuses (no horizon,
say) count as neither right nor wrong.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl_bench.proving.default import default_records

Record = Mapping[str, Any]
RIGHT, PRECISE = 0.10, 0.05
ORDER = ("trust", "caution", "distrust")
HEADER = ("cases", "median", "p90", "trusted", "trusted right", "missing", "refused", "core-seconds")
FAILS = 0.95  # share of trusted values that should be right


def summary(records: Sequence[Record]) -> dict[str, Any]:
    """The numbers of one group of records."""
    asked, records = len(records), [r for r in records if r["status"] != "refused"]
    errors = np.array([math.inf if r["error"] is None else r["error"] for r in records])
    trusted = errors[[verdict_before(r) == "trust" for r in records]]
    middle, high = (_quantile(errors, q) for q in (0.5, 0.9))
    return {
        "cases": asked,
        "refused": asked - len(records),
        "median": _finite(middle),
        "p90": _finite(high),
        "trusted": len(trusted),
        "share_trusted": len(trusted) / asked,
        "share_trusted_right": float((trusted <= RIGHT).mean()) if len(trusted) else None,
        "missing": int(np.isinf(errors).sum()),
        "core_seconds": float(np.mean([r["timings"]["core"] for r in records])) if records else 0.0,
    }


def verdict_before(record: Record) -> str:
    """The worst of the method's own checks: the verdict as it was before the budget (results/verdict.md)."""
    if record["status"] in ("diverged", "degenerate"):
        return "distrust"
    return max((check["verdict"] for check in record["checks"]), key=ORDER.index, default="caution")


def _quantile(errors: NDArray[np.float64], share: float) -> float:
    return float(np.quantile(errors, share, method="inverted_cdf")) if len(errors) else math.inf


def grouped(records: Sequence[Record], by: Callable[[Record], tuple[str, ...]]) -> dict[tuple[str, ...], Any]:
    """A summary for each group, in the order of their names."""
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(by(record), []).append(record)
    return {key: summary(group) for key, group in sorted(groups.items())}


def _method(record: Record) -> str:
    return str(record["experiment"]["method"])


VIEWS: dict[str, tuple[tuple[str, ...], Callable[[Record], tuple[str, ...]]]] = {
    "method": (("method",), lambda r: (_method(r),)),
    "set": (("set", "method"), lambda r: (r["set"], _method(r))),
    "mark": (("mark", "method"), lambda r: (r["mark"]["mark"], _method(r))),
    "precise": (("set", "method"), lambda r: (r["set"], _method(r))),
    "regime": (("regime", "method"), lambda r: (r["regime"], _method(r))),
    "family": (("family", "method"), lambda r: (r["family"], _method(r))),
    "cell": (("family", "regime", "method"), lambda r: (r["family"], r["regime"], _method(r))),
}
TITLES = {
    "method": "By method (unknowable families left out)",
    "set": "By set of families",
    "mark": "By mark: is the case covered by its log? (unknowable families left out)",
    "precise": "Covered cases whose sampling half width is under 5 % of the scale, by set of families",
    "regime": "By regime (unknowable families left out)",
    "family": "By family",
    "cell": "By family and regime",
}
KNOWABLE_ONLY = ("method", "mark", "precise", "regime")


def precise(record: Record) -> bool:
    """Covered, and chance alone moves the value by less than 5 % of the scale."""
    if record["value"] is None or record["standard_error"] is None or record["mark"]["mark"] != "covered":
        return False
    return bool(1.96 * record["standard_error"] <= PRECISE * max(abs(record["value"]), record["scale"]))


def tables(records: Sequence[Record]) -> dict[str, list[dict[str, Any]]]:
    """Every view as a list of rows; `cell` is by family, regime and method."""
    knowable = [r for r in records if r["set"] != "unknowable"]
    found = {}
    for view, (names, by) in VIEWS.items():
        chosen = knowable if view in KNOWABLE_ONLY else records
        rows = grouped([r for r in chosen if view != "precise" or precise(r)], by)
        found[view] = [dict(zip(names, key, strict=True)) | row for key, row in rows.items()]
    return found


def page(records: Sequence[Record], failed: int) -> str:
    """The tables as Markdown; the default has rows of its own."""
    default, unknown = default_records(records)
    found = tables([*records, *default])
    lines = [
        "# The proving ground",
        "",
        f"{len(records)} cells of {len({r['family'] for r in records})} families; {failed} failed. Made by "
        "`bcrl benchmark table proving` from results/proving.jsonl.",
        "Relative error: |V^ - V| / max(|V|, S), with S the log's mean discounted sum of |reward|. Trusted: "
        "by the worst of the method's own checks, the verdict before there was a budget (verdict.md has "
        "both). Trusted right: of the trusted values, those off by at most 10 %. A missing value (diverged, "
        "say) is an error without bound; what a method refuses to answer counts in `refused` only. "
        "core-seconds: mean of a cell.",
        f"**default**: what `Auto` answers, put together from the records of consensus and bcrl: "
        f"{len(default)} cases; {unknown} more wanted learned features, which were not asked there.",
        "",
        "## Where the verdict fails",
        "",
        *_failures(found["cell"]),
    ]
    for view, (names, _) in VIEWS.items():
        lines += ["", f"## {TITLES[view]}", "", *_table(names, found[view])]
    return "\n".join(lines) + "\n"


def _failures(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """By method: families and regimes in which fewer than 95 % of the trusted values are right."""
    lines = []
    for method in sorted({row["method"] for row in rows}):
        bad = [
            f"{row['family']}/{row['regime']} ({_wrong(row)} of {row['trusted']})"
            for row in rows
            if row["method"] == method and row["trusted"] and row["share_trusted_right"] < FAILS
        ]
        lines.append(f"- **{method}**: {', '.join(bad) if bad else 'nowhere'}")
    return ["Trusted and wrong (how many of how many trusted), by method:", "", *lines]


def _wrong(row: Mapping[str, Any]) -> int:
    return int(round(row["trusted"] * (1.0 - row["share_trusted_right"])))  # noqa: RUF046 - Any to mypy


def _table(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    head = [*names, *HEADER]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        numbers = [
            str(row["cases"]),
            _percent(row["median"]),
            _percent(row["p90"]),
            _percent(row["share_trusted"]),
            "" if row["share_trusted_right"] is None else _percent(row["share_trusted_right"]),
            str(row["missing"]),
            str(row["refused"]),
            f"{row['core_seconds']:.1f}",
        ]
        lines.append(f"| {' | '.join([*(str(row[name]) for name in names), *numbers])} |")
    return lines


def _percent(share: float | None) -> str:
    return "no value" if share is None else f"{share:.1%}" if share < 10.0 else f"{share:.0f} times"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
