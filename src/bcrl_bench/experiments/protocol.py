"""From records to the numbers of tables: errors as shares of the true value, and how well policies are
ranked.

    RMSE over start states  sqrt(mean_i (V^(s_i) - V(s_i))^2) / |V|  (Chang et al., 2022; where there is V(s))
    |mean error|            |mean_i V^(s_i) - V| / |V|                  (DOPE: Fu et al., 2021; every method)
    beyond the starts       the same RMSE at every 20th step of target rollouts
    rank correlation        Spearman's, over the policies of a task
    regret@1                (best true value - true value of the policy that looks best) / best true value

Each number is divided by the true value first, then averaged over tasks for each seed; means and intervals (t
quantile) are over seeds. Only whole seeds count, those with every task (and for rankings every policy) that
anyone in the table has: numbers over different tasks do not compare. A value that diverged, or an error above
`CAP`, counts as `CAP`: one blow-up would otherwise be the whole mean. A method that has no value for some
policy has no ranking: correlation 0, regret of a random choice.
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
TARGET, HEADLINE = "100", "025"  # the policy and the data that most figures are about


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
    return _relative(abs(float(record["value"]) - truth), truth)


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
    return _relative(float(rmse), float(record["truth"]["value"]))


def _relative(error: float, truth: float) -> float:
    """Of a policy that earns nothing every error is too large to be a share of it."""
    return min(CAP, error / abs(truth)) if truth != 0.0 else CAP if error > 0.0 else 0.0


def select(records: Iterable[Record], **wanted: str) -> list[Record]:
    """Records of these: `select(records, dataset="025", policy="100")`."""
    return [r for r in records if all(r["experiment"][key] == value for key, value in wanted.items())]


def by_method(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Records of each method, in order of appearance."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record["experiment"]["method"], []).append(record)
    return groups


def tasks_of(records: Iterable[Record]) -> set[str]:
    """Every task that anyone has."""
    return {record["experiment"]["task"] for record in records}


def complete_seeds(records: Iterable[Record], tasks: set[str]) -> list[Record]:
    """Records of those seeds that have every one of these tasks."""
    seeds: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        seeds[record["experiment"]["seed"]].append(record)
    return [record for found in seeds.values() if tasks_of(found) == tasks for record in found]


def summary(records: Iterable[Record], metric: Metric, tasks: set[str]) -> Summary | None:
    """One method's number over whole seeds; None where it has no such seed, or no such number."""
    chosen = complete_seeds(records, tasks)
    seeds: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in chosen:
        value = metric(record)
        if value is None:
            return None
        seeds[record["experiment"]["seed"]][record["experiment"]["task"]].append(value)
    means = [float(np.mean([np.mean(values) for values in found.values()])) for found in seeds.values()]
    diverged = sum(record["value"] is None for record in chosen)
    return _over_seeds(means, len(tasks), diverged) if means else None


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


def ranking(records: Iterable[Record], pairs: set[tuple[str, str]]) -> Ranking | None:
    """One method's ranking over all tasks, over seeds that have all these (task, policy) pairs; None without
    such a seed.

    A task of fewer than three policies has nothing to rank.
    """
    seeds: dict[int, dict[tuple[str, str], Record]] = defaultdict(dict)
    for record in records:
        cell = record["experiment"]
        seeds[cell["seed"]][cell["task"], cell["policy"]] = record
    tasks = sorted({task for task, _ in pairs if sum(task == other for other, _ in pairs) >= 3})
    means, lost = [], 0
    for found in seeds.values():
        if not tasks or not pairs <= set(found):
            continue
        groups = [[record for (t, _), record in found.items() if t == task] for task in tasks]
        ranks = [rank([r["value"] for r in g], [r["truth"]["value"] for r in g]) for g in groups]
        means.append(np.mean(ranks, axis=0))
        lost += sum(record["value"] is None for record in found.values())
    if not means:
        return None
    return Ranking(*(_over_seeds([float(mean[k]) for mean in means], len(tasks), lost) for k in (0, 1)))


def ranked_pairs(records: Iterable[Record]) -> set[tuple[str, str]]:
    """Every (task, policy) that anyone has."""
    return {(record["experiment"]["task"], record["experiment"]["policy"]) for record in records}


def rank(estimates: Sequence[float | None], truths: Sequence[float]) -> tuple[float, float]:
    """Spearman's correlation and regret@1; a constant or missing estimate ranks nothing."""
    exact = np.asarray(truths, dtype=np.float64)
    best = float(exact.max())
    known = [value for value in estimates if value is not None]
    if len(known) < len(exact) or len(set(known)) == 1:
        return 0.0, (best - float(exact.mean())) / abs(best)
    correlation = float(stats.spearmanr(known, exact).statistic)
    return correlation, (best - float(exact[int(np.argmax(known))])) / abs(best)
