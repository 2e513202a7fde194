"""The budget's multipliers, and what they are worth on families that they never saw.

The honest half width is m x (sum of the budget's entries). m of a method is the quantile of
|error| / sum over the ground's records at the level asked for, every family with the same weight. Each family
is judged by an m that was made without it (leave one family out); the m that ships is made from all
calibration and design families. No method runs: everything is in the records.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.estimate import verdict_at
from bcrl.inference.budget import BEYOND, entries_of
from bcrl_bench.proving.report import ORDER, verdict_before

LEVEL = 0.95
ENOUGH = 60  # values below which a method's own quantile is not believed: 95 % of them leave three beyond
RIGHT, FAR_OFF, WRONG, PRECISE = 0.10, 0.25, 0.30, 0.05


@dataclass(frozen=True)
class Answer:
    """One record, as the calibration reads it.

    Attributes:
        family, method, mark, case: which one.
        known: whether the log can tell (False for the unknowable families).
        sealed: of a family that made no multiplier and was opened once.
        value, truth: what was said and what is true; the value is nan where the method had none.
        size: max(|V^|, S), that half widths are shares of.
        true_size: max(|V|, S), that errors are shares of.
        entries: of the budget, in the reward's unit.
        sampling: half width of the sampling interval.
        logged: the log's own value.
        comparable: the log's mean return is the logging policy's value (no tail beyond the records).
        before: the verdict by the worst of the method's own checks, as it was before there was a budget.
        bound: the best verdict that the log's own faults allow.
    """

    family: str
    method: str
    mark: str
    case: str
    known: bool
    value: float
    truth: float
    size: float
    true_size: float
    entries: Mapping[str, float]
    sampling: float
    logged: float
    comparable: bool
    before: str
    bound: str
    sealed: bool = False

    @property
    def error(self) -> float:
        """As a share of max(|V|, S); infinite without a value."""
        gap = abs(self.value - self.truth)
        return gap / self.true_size if math.isfinite(gap) else math.inf

    @property
    def total(self) -> float:
        """Sum of the entries."""
        return sum(self.entries.values())

    @property
    def near(self) -> float:
        """The honest interval's reach towards the log, as a share of its half width (budget.py)."""
        far = (1.0 - 1.0 / BEYOND) * self.entries.get("beyond the log", 0.0)
        return 1.0 - far / self.total if self.total > 0.0 else 1.0


def multiplier(answers: Sequence[Answer], level: float = LEVEL) -> float:
    """Quantile of |error| / sum of entries, families weighted equally."""
    usable = [a for a in answers if math.isfinite(a.value) and a.known]
    ratios = np.array([abs(a.value - a.truth) / a.total for a in usable])
    counts: dict[str, int] = {}
    for a in usable:
        counts[a.family] = counts.get(a.family, 0) + 1
    weights = np.array([1.0 / counts[a.family] for a in usable])
    return weighted_quantile(ratios, weights, level)


def weighted_quantile(values: NDArray[np.float64], weights: NDArray[np.float64], level: float) -> float:
    """The smallest value with at least this share of the weight at or below it."""
    if not len(values):
        return math.inf
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(int(np.searchsorted(share, level)), len(values) - 1)])


def leave_one_family_out(answers: Sequence[Answer]) -> list[float]:
    """Each answer's multiplier, from families other than its own (`of_method`)."""
    made: dict[tuple[str, str], float] = {}
    for a in answers:
        if (a.family, a.method) not in made:
            others = [b for b in answers if b.family != a.family]
            made[a.family, a.method] = of_method(others, a.method)
    return [made[a.family, a.method] for a in answers]


def of_method(answers: Sequence[Answer], method: str) -> float:
    """A method's own multiplier; where it has few values, that of all methods if that is larger."""
    same = [a for a in answers if a.method == method]
    own = multiplier(same) if same else 0.0
    return own if len(same) >= ENOUGH else max(own, multiplier(answers))


def verdict_of(half: float, size: float) -> str:
    """From the honest interval's half width, as a share of max(|V^|, S)."""
    return verdict_at(half / size if size > 0.0 else math.inf)


def judged(
    answers: Sequence[Answer],
    halves: Sequence[float],
    verdicts: Sequence[str],
    towards: Sequence[float] | None = None,
) -> dict[str, Any]:
    """The figures of issue 23, each as (hits, cases).

    Args:
        answers: the records.
        halves: of the honest intervals.
        verdicts: by them.
        towards: how far the intervals reach on the log's side; as far as on the other if None.
    """
    hits = _hits(answers, halves, verdicts, halves if towards is None else towards)
    finite = [(a, h) for a, h in zip(answers, halves, strict=True) if math.isfinite(a.value)]
    families = _by_family(hits["coverage"])
    trusted = [a.error for a, v in zip(answers, verdicts, strict=True) if v == "trust"]
    return {
        "cases": len(answers),
        **{name: _share(rows) for name, rows in hits.items()},
        "worst_family_coverage": min(
            ((right / count, family) for family, (right, count) in families.items()), default=(math.nan, "")
        ),
        "median_half_width": float(np.median([h / a.size for a, h in finite])) if finite else math.nan,
        "worst_trusted_error": max(trusted, default=math.nan),
        "intervals": {name: family_interval(rows) for name, rows in hits.items()},
    }


Hit = tuple[str, bool]  # the family, and whether it was so


def _hits(
    answers: Sequence[Answer], halves: Sequence[float], verdicts: Sequence[str], towards: Sequence[float]
) -> dict[str, list[Hit]]:
    """What each share of issue 23 counts."""
    rows = list(zip(answers, halves, verdicts, strict=True))
    gaps = [
        (a, near, a.value - a.logged, a.truth - a.logged)
        for a, near in zip(answers, towards, strict=True)
        if a.comparable and math.isfinite(a.value)
    ]
    return {
        "coverage": [(a.family, abs(a.value - a.truth) <= h) for a, h, _ in rows if math.isfinite(a.value)],
        "trusted_right": [(a.family, a.error <= RIGHT) for a, _, v in rows if v == "trust"],
        "trusted_far_off": [(a.family, a.error > FAR_OFF) for a, _, v in rows if v == "trust"],
        "covered_right_trusted": [
            (a.family, v == "trust")
            for a, _, v in rows
            if a.mark == "covered" and a.error <= RIGHT and a.sampling <= PRECISE * a.size
        ],
        "wrong_distrusted": [(a.family, v == "distrust") for a, _, v in rows if a.error > WRONG],
        "decisions_right": [
            (a.family, (said > 0.0) == (true > 0.0)) for a, h, said, true in gaps if abs(said) > h
        ],
        "decisions_given": [
            (a.family, abs(said) > h)
            for a, h, said, true in gaps
            if a.mark == "covered" and abs(true) > RIGHT * a.true_size
        ],
    }


def _by_family(rows: Sequence[Hit]) -> dict[str, tuple[int, int]]:
    return {
        family: _share([row for row in rows if row[0] == family]) for family in sorted({r[0] for r in rows})
    }


def family_interval(rows: Sequence[Hit], draws: int = 2_000) -> tuple[float, float]:
    """95 % interval of a share when whole families are drawn again; nan without any."""
    counts = np.array(list(_by_family(rows).values()), dtype=np.float64).reshape(-1, 2)
    if not len(counts):
        return (math.nan, math.nan)
    picked = np.random.default_rng(0).integers(0, len(counts), size=(draws, len(counts)))
    sums = counts[picked].sum(axis=1)
    low, high = np.quantile(sums[:, 0] / sums[:, 1], [0.025, 0.975])
    return float(low), float(high)


def _share(hits: Sequence[Hit]) -> tuple[int, int]:
    return sum(hit for _, hit in hits), len(hits)


def answer_of(record: Mapping[str, Any]) -> Answer:
    """A record of the proving ground."""
    value = math.nan if record["value"] is None else float(record["value"])
    scale, truth, error = float(record["scale"]), float(record["truth"]["value"]), record["standard_error"]
    cell, case, checks = record["experiment"], record["case"], record["checks"]
    return Answer(
        family=record["family"],
        method=cell["method"],
        mark=record["mark"]["mark"],
        case=f"{cell['task']}/{cell['dataset']}/{cell['policy']}",
        known=record["set"] != "unknowable",
        value=value,
        truth=truth,
        size=max(abs(value) if math.isfinite(value) else 0.0, scale),
        true_size=max(abs(truth), scale),
        entries=entries_of(record["stats"], value, error),
        sampling=math.inf if error is None else 1.96 * error,
        logged=float(record["logged"]),
        comparable=_whole_returns(case, record["dataset"]),
        before=verdict_before(record),
        bound=max((c["verdict"] for c in checks if c["binding"]), key=ORDER.index, default="trust"),
        sealed=record["set"] == "sealed",
    )


def _whole_returns(case: Mapping[str, Any], dataset: Mapping[str, Any]) -> bool:
    length = dataset["transitions"] / dataset["episodes"]
    horizon = math.inf if case["horizon"] is None else int(case["horizon"])
    return bool(horizon <= length or float(case["discount"]) ** length < 0.02)


def after(answers: Sequence[Answer], multipliers: Sequence[float]) -> tuple[list[float], list[str]]:
    """Honest half widths and verdicts."""
    halves = [m * a.total for a, m in zip(answers, multipliers, strict=True)]
    verdicts = [
        max(verdict_of(half, a.size), a.bound, key=ORDER.index) if math.isfinite(a.value) else "distrust"
        for a, half in zip(answers, halves, strict=True)
    ]
    return halves, verdicts


def study(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Everything results/verdict.json holds: after and before, over all and by method, the sealed families
    apart; multipliers.
    """
    asked = [a for a in map(answer_of, (r for r in records if r["status"] != "refused")) if a.known]
    known, sealed = [a for a in asked if not a.sealed], [a for a in asked if a.sealed]
    methods = sorted({a.method for a in known})
    made = {method: of_method(known, method) for method in methods}
    open_multipliers = leave_one_family_out(known)
    halves, verdicts = after(known, open_multipliers)
    pooled = multiplier(known)
    shut = [made.get(a.method, pooled) for a in sealed]
    return {
        "all": compared(known, open_multipliers),
        "methods": {method: compared(*_of(method, known, open_multipliers)) for method in methods},
        "sealed": compared(sealed, shut) if sealed else None,
        "sealed_methods": {
            method: compared(*_of(method, sealed, shut)) for method in sorted({a.method for a in sealed})
        },
        "multipliers": made,
        "pooled": pooled,
        "families": _by_family(_hits(known, halves, verdicts, halves)["coverage"]),
        "trusted_wrong": [
            {"case": a.case, "method": a.method, "error": a.error}
            for rows, multipliers in ((known, open_multipliers), (sealed, shut))
            for a, v in zip(rows, after(rows, multipliers)[1], strict=True)
            if v == "trust" and a.error > RIGHT
        ],
    }


def _of(
    method: str, answers: Sequence[Answer], multipliers: Sequence[float]
) -> tuple[list[Answer], list[float]]:
    chosen = [(a, m) for a, m in zip(answers, multipliers, strict=True) if a.method == method]
    return [a for a, _ in chosen], [m for _, m in chosen]


def compared(answers: Sequence[Answer], multipliers: Sequence[float]) -> dict[str, Any]:
    """The figures with the budget, and before there was one."""
    halves, verdicts = after(answers, multipliers)
    near = [half * a.near for half, a in zip(halves, answers, strict=True)]
    return {
        "after": judged(answers, halves, verdicts, near),
        "before": judged(answers, [a.sampling for a in answers], [a.before for a in answers]),
    }


# The classes behind the methods of the profile, as `bcrl.inference.budget.multiplier_of` reads them.
KINDS = {
    "random": "LSPE(RandomFeatures",
    "bcrl": "LSPE(BellmanComplete",
    "fqe": "FQE",
    "dice": "FlowDICE",
    "model": "ModelBased",
    "dr": "DoublyRobust",
    "is": "ImportanceSampling",
    "anchored": "Anchored",
    "consensus": "Consensus",
}


def shipped(found: Mapping[str, Any], command: str) -> dict[str, Any]:
    """multipliers.json: of each method (`of_method`); `other`, from all values, for the rest."""
    cases = {method: part["after"]["cases"] for method, part in found["methods"].items()}
    counts = {KINDS.get(method, method): count for method, count in cases.items()}
    own = {KINDS.get(method, method): round(value, 3) for method, value in found["multipliers"].items()}
    return {"command": command, "values": counts, "multipliers": {**own, "other": round(found["pooled"], 3)}}


WORDS = {
    "coverage": "honest 95 % interval holds the truth",
    "worst_family_coverage": "worst family's coverage",
    "median_half_width": "median half width (share of the scale)",
    "trusted_right": "trusted values that are right to 10 %",
    "worst_trusted_error": "largest error of a trusted value",
    "trusted_far_off": "trusted values off by more than 25 %",
    "covered_right_trusted": "right, covered, sampling half width under 5 %: trusted",
    "wrong_distrusted": "values off by more than 30 %: distrusted",
    "decisions_right": "decisions against the log that are right",
    "decisions_given": "decisions given where covered policies differ by more than 10 %",
}


def page(found: Mapping[str, Any], command: str) -> str:
    """results/verdict.md."""
    lines = [
        "# Does the verdict hold on families that nobody tuned on?",
        "",
        f"Made by `{command}` from results/proving.jsonl; no method runs. Every family is judged by",
        "a multiplier that was made without it. *Before*: the worst of the method's own checks, and its",
        "sampling interval, on the same records. After a share: 95 % of its values when whole families are",
        "drawn again. *Sealed* families made no multiplier; they were run after estimators and budget were",
        "frozen (2026-11-18), and once more (2026-11-19) with views that were changed on design families.",
        "",
    ]
    parts = [("All methods", found["all"]), *found["methods"].items()]
    if found["sealed"] is not None:
        parts += [("Sealed families, all methods", found["sealed"])]
        parts += [(f"Sealed families, {name}", part) for name, part in found["sealed_methods"].items()]
    for name, part in parts:
        lines += [f"## {name} ({part['after']['cases']} values)", "", "| | after | before |", "|---|---|---|"]
        lines += [
            f"| {text} | {_cell(part['after'], key)} | {_cell(part['before'], key)} |"
            for key, text in WORDS.items()
        ]
        lines.append("")
    lines += ["## Coverage by family", "", "| family | held |", "|---|---|"]
    lines += [f"| {family} | {_said(share)} |" for family, share in found["families"].items()]
    lines += ["", "## Trusted and wrong", "", "| case | method | error |", "|---|---|---|"]
    lines += [f"| {row['case']} | {row['method']} | {row['error']:.0%} |" for row in found["trusted_wrong"]]
    made = ", ".join(f"{m} {v:.3g}" for m, v in found["multipliers"].items())
    lines += ["", f"Multipliers: {made}; all methods together {found['pooled']:.3g}."]
    return "\n".join(lines) + "\n"


def _cell(figures: Mapping[str, Any], key: str) -> str:
    """A figure, and the interval of a share."""
    around = figures["intervals"].get(key)
    known = around is not None and not math.isnan(around[0])
    return _said(figures[key]) + (f", {around[0]:.0%} to {around[1]:.0%}" if known else "")


def _said(value: Any) -> str:  # noqa: ANN401 - a share, a number, or a number with its family
    if isinstance(value, tuple) and isinstance(value[1], str):
        return f"{value[0]:.2f} ({value[1]})"
    if isinstance(value, tuple):
        return f"{value[0]} of {value[1]}" + (f" ({value[0] / value[1]:.1%})" if value[1] else "")
    return f"{value:.2f}"
