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

from bcrl.inference.budget import entries_of

LEVEL = 0.95
RIGHT, FAR_OFF, WRONG = 0.10, 0.25, 0.30
TRUST, DISTRUST = 0.10, 0.30


@dataclass(frozen=True)
class Answer:
    """One record, as the calibration reads it.

    Attributes:
        family, method, mark, case: which one.
        known: whether the log can tell (False for the unknowable families).
        value, truth: what was said and what is true; the value is nan where the method had none.
        size: max(|V^|, S), that half widths are shares of.
        true_size: max(|V|, S), that errors are shares of.
        entries: of the budget, in the reward's unit.
        sampling: half width of the sampling interval.
        logged: the log's own value.
        verdict: that the estimate had when it was recorded.
        capped: the best verdict that the log's own faults allow.
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
    verdict: str
    capped: str

    @property
    def error(self) -> float:
        """As a share of max(|V|, S); infinite without a value."""
        gap = abs(self.value - self.truth)
        return gap / self.true_size if math.isfinite(gap) else math.inf

    @property
    def total(self) -> float:
        """Sum of the entries."""
        return sum(self.entries.values())


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
    """Each answer's multiplier, from the families other than its own and the same method."""
    made: dict[tuple[str, str], float] = {}
    for a in answers:
        if (a.family, a.method) not in made:
            others = [b for b in answers if b.method == a.method and b.family != a.family]
            made[a.family, a.method] = multiplier(others)
    return [made[a.family, a.method] for a in answers]


def verdict_of(half: float, size: float) -> str:
    """From the honest interval's half width, as a share of max(|V^|, S)."""
    share = half / size if size > 0.0 else math.inf
    return "trust" if share <= TRUST else "distrust" if not share <= DISTRUST else "caution"


def judged(answers: Sequence[Answer], halves: Sequence[float], verdicts: Sequence[str]) -> dict[str, Any]:
    """The figures of issue 23, each as (hits, cases)."""
    rows = list(zip(answers, halves, verdicts, strict=True))
    finite = [(a, h) for a, h, _ in rows if math.isfinite(a.value)]
    families = sorted({a.family for a, _ in finite})
    covers = {
        family: [abs(a.value - a.truth) <= h for a, h in finite if a.family == family] for family in families
    }
    trusted = [a for a, _, v in rows if v == "trust"]
    wrong = [(a, v) for a, _, v in rows if a.error > WRONG]
    sound = [
        (a, v) for a, _, v in rows if a.mark == "covered" and a.error <= RIGHT and a.sampling <= 0.05 * a.size
    ]
    gaps = [(a, h, a.value - a.logged, a.truth - a.logged) for a, h in finite]
    given = [(said > 0.0) == (true > 0.0) for a, h, said, true in gaps if abs(said) > h]
    wanted = [
        abs(said) > h for a, h, said, true in gaps if a.mark == "covered" and abs(true) > 0.1 * a.true_size
    ]
    return {
        "coverage": _share([hit for each in covers.values() for hit in each]),
        "worst_family_coverage": min(
            ((float(np.mean(each)), family) for family, each in covers.items()), default=(math.nan, "")
        ),
        "median_half_width": float(np.median([h / a.size for a, h in finite])) if finite else math.nan,
        "trusted_right": _share([a.error <= RIGHT for a in trusted]),
        "worst_trusted_error": max((a.error for a in trusted), default=math.nan),
        "trusted_far_off": _share([a.error > FAR_OFF for a in trusted]),
        "covered_right_trusted": _share([v == "trust" for _, v in sound]),
        "wrong_distrusted": _share([v == "distrust" for _, v in wrong]),
        "decisions_right": _share(given),
        "decisions_given": _share(wanted),
    }


def _share(hits: Sequence[bool]) -> tuple[int, int]:
    return int(sum(hits)), len(hits)


def answer_of(record: Mapping[str, Any]) -> Answer:
    """A record of the proving ground."""
    value = math.nan if record["value"] is None else float(record["value"])
    stats, scale = record["stats"], float(record["scale"])
    truth = float(record["truth"]["value"])
    error = record["standard_error"]
    case = record["experiment"]
    return Answer(
        family=case["task"],
        method=case["method"],
        mark=record["mark"]["mark"],
        case=f"{case['task']}/{case['dataset']}/{case['policy']}",
        known=record["set"] != "unknowable",
        value=value,
        truth=truth,
        size=max(abs(value) if math.isfinite(value) else 0.0, scale),
        true_size=max(abs(truth), scale),
        entries=entries_of(stats, value, error),
        sampling=1.96 * error if error is not None else math.inf,
        logged=float(record["logged"]),
        verdict=record["verdict"],
        capped="trust",
    )
