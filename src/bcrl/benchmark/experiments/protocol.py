"""From records to the numbers of tables: errors as shares of the true value, and how well policies are ranked.

    RMSE over start states  sqrt(mean_i (V^(s_i) - V(s_i))^2) / |V|     (Chang et al., 2022; methods with V(s) only)
    |mean error|            |mean_i V^(s_i) - V| / |V|                  (DOPE: Fu et al., 2021; every method)
    beyond the starts       the same RMSE at every 20th step of target rollouts
    rank correlation        Spearman's, over the policies of a task
    regret@1                (best true value - true value of the policy that looks best) / best true value

Each number is divided by the true value first, then averaged over tasks for each seed; means and intervals (t quantile) are over
seeds. A value that diverged, or an error above `CAP`, counts as `CAP`: one blow-up would otherwise be the whole mean. A method
that has no value for some policy has no ranking: correlation 0, regret of a random choice.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

Record = Mapping[str, Any]
Metric = Callable[[Record], float | None]
CAP = 10.0


@dataclass(frozen=True)
class Summary:
    """A mean over seeds of means over tasks; without a second seed no interval."""

    mean: float
    low: float | None
    high: float | None
    seeds: int
    tasks: int
    diverged: int

    def text(self, digits: int = 2) -> str:
        """`0.31 (0.25 to 0.37)`."""
        if self.low is None or self.high is None:
            return f"{self.mean:.{digits}f}"
        return f"{self.mean:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"


def mean_error(record: Record) -> float:
    """|value - truth| / |truth|."""
    if record["value"] is None:
        return CAP
    truth = float(record["truth"]["value"])
    return min(CAP, abs(float(record["value"]) - truth) / abs(truth))


def start_rmse(record: Record) -> float | None:
    """RMSE over start states over |truth|; None for methods of one number."""
    return _share(record, "starts")


def visited_rmse(record: Record) -> float | None:
    """RMSE over visited states over |truth|; None for methods of one number."""
    return _share(record, "visited")


def _share(record: Record, where: str) -> float | None:
    if record[where] is None:
        return None
    rmse = record[where]["rmse"]
    if rmse is None or record["value"] is None:
        return CAP
    return min(CAP, float(rmse) / abs(float(record["truth"]["value"])))


def select(records: Iterable[Record], **wanted: str) -> list[Record]:
    """Records of these: `select(records, dataset="025", policy="100")`."""
    return [r for r in records if all(r["experiment"][key] == value for key, value in wanted.items())]


def by_method(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Records of each method, in order of appearance."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record["experiment"]["method"], []).append(record)
    return groups


def summary(records: Sequence[Record], metric: Metric) -> Summary | None:
    """One method's number; seeds that do not cover every task are left out. None where the method has no such number."""
    tasks = {record["experiment"]["task"] for record in records}
    seeds: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        value = metric(record)
        if value is None:
            return None
        seeds[record["experiment"]["seed"]][record["experiment"]["task"]].append(value)
    whole = [
        float(np.mean([np.mean(values) for values in found.values()]))
        for found in seeds.values()
        if set(found) == tasks
    ]
    diverged = sum(record["value"] is None for record in records)
    return _over_seeds(whole, len(tasks), diverged) if whole else None


def _over_seeds(values: Sequence[float], tasks: int, diverged: int) -> Summary:
    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Summary(mean, None, None, count, tasks, diverged)
    reach = float(stats.t.ppf(0.975, count - 1) * np.std(values, ddof=1) / math.sqrt(count))
    return Summary(mean, mean - reach, mean + reach, count, tasks, diverged)


@dataclass(frozen=True)
class Ranking:
    """How a method orders the policies of a task."""

    correlation: Summary
    regret: Summary


def ranking(records: Sequence[Record]) -> Ranking | None:
    """One method's ranking over all tasks; only where at least three policies of a task have a record for the seed."""
    groups: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for record in records:
        groups[record["experiment"]["task"], record["experiment"]["seed"]].append(record)
    tasks = {task for task, _ in groups}
    most = {task: max(len(g) for (t, _), g in groups.items() if t == task) for task in tasks}
    seeds: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for (task, seed), group in groups.items():
        if len(group) == most[task] and len(group) >= 3:
            seeds[seed].append(rank([r["value"] for r in group], [r["truth"]["value"] for r in group]))
    whole = [np.mean(found, axis=0) for found in seeds.values() if len(found) == len(tasks)]
    if not whole:
        return None
    lost = sum(record["value"] is None for record in records)
    return Ranking(*(_over_seeds([float(v[k]) for v in whole], len(tasks), lost) for k in (0, 1)))


def rank(estimates: Sequence[float | None], truths: Sequence[float]) -> tuple[float, float]:
    """Spearman's correlation and regret@1; a constant or missing estimate ranks nothing."""
    exact = np.asarray(truths, dtype=np.float64)
    best = float(exact.max())
    known = [value for value in estimates if value is not None]
    if len(known) < len(exact) or len(set(known)) == 1:
        return 0.0, (best - float(exact.mean())) / abs(best)
    correlation = float(stats.spearmanr(known, exact).statistic)
    return correlation, (best - float(exact[int(np.argmax(known))])) / abs(best)
