"""Records as Markdown: errors of methods with V(s) and of methods of one number apart, ranking, policies,
values by task.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bcrl_bench.experiments import protocol
from bcrl_bench.experiments.protocol import CAP, HEADLINE, TARGET, Record, by_method, select, tasks_of


def table_page(name: str, records: Sequence[Record], portraits: Mapping[str, Any]) -> str:
    """results/<profile>/table.md."""
    lines = [
        f"# {name}: {len(records)} cells",
        "",
        f"Tasks: {', '.join(sorted(tasks_of(records)))}. Made by `bcrl benchmark figures {name}`.",
        "",
    ]
    lines += [
        "Errors are shares of the true value, averaged over tasks for each seed; in brackets the 95 % "
        "interval over seeds. "
        f"A diverged value, or an error above {CAP:.0%}, counts as {CAP:.0%}. "
        "A row speaks of whole seeds only, those with all tasks.",
        "",
    ]
    if any(r["settings"].get("updates") is not None for r in records):
        wall, core = (sum(r["timings"][kind] for r in records) for kind in ("wall", "core"))
        about = f"**It runs; it tests no claim**: a few updates of each method. {core:.0f} core-seconds"
        lines += [f"{about} in all, {wall:.0f} seconds of wall time, one cell after the other.", ""]
    for dataset in dict.fromkeys(r["experiment"]["dataset"] for r in records):
        chosen = select(records, dataset=dataset, policy=TARGET)
        everywhere = [r for r in chosen if r["starts"] is not None]
        scalar = [r for r in chosen if r["starts"] is None]
        if chosen:
            tasks = tasks_of(chosen)
            lines += [f"## Dataset {dataset}, policy {TARGET}", "", *_errors(everywhere, tasks, True), ""]
            lines += (
                ["Methods that give one number:", "", *_errors(scalar, tasks, False), ""] if scalar else []
            )
    lines += [*_ranking(select(records, dataset=HEADLINE)), ""]
    lines += [*_values(records), "", *_policies(portraits), ""]
    return "\n".join(lines)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _errors(records: Sequence[Record], tasks: set[str], everywhere: bool) -> list[str]:
    states = ["RMSE over starts", "RMSE at visited steps"] if everywhere else []
    counts = ["trust / caution / distrust", "diverged", "seeds", "core-seconds"]
    header = ["method", *states, "error of the mean", *counts]
    lines = [_row(*header), "|---" * len(header) + "|"]
    for method, group in by_method(records).items():
        metrics = (protocol.start_rmse, protocol.visited_rmse) if everywhere else ()
        found = [protocol.summary(group, metric, tasks) for metric in metrics]
        main = protocol.summary(group, protocol.mean_error, tasks)
        complete = protocol.complete_seeds(group, tasks)
        if main is None:
            missing = f"no seed with all {len(tasks)} tasks"
            lines.append(_row(method, missing, *[""] * (len(header) - 2)))
            continue
        said = [sum(r["verdict"] == word for r in complete) for word in ("trust", "caution", "distrust")]
        core = float(np.mean([r["timings"]["core"] for r in complete]))
        numbers = ["" if one is None else one.text() for one in (*found, main)]
        counts_of = [" / ".join(map(str, said)), str(main.diverged), str(main.seeds), f"{core:.0f}"]
        lines.append(_row(method, *numbers, *counts_of))
    return lines


def _ranking(records: Sequence[Record]) -> list[str]:
    pairs = protocol.ranked_pairs(records)
    found = {m: one for m, g in by_method(records).items() if (one := protocol.ranking(g, pairs)) is not None}
    if not found:
        return ["Ranking of policies: no method has a seed with three policies or more of every task."]
    lines = [
        f"## Ranking of the policies, dataset {HEADLINE}",
        "",
        _row("method", "Spearman", "regret@1", "seeds", "tasks"),
    ]
    lines.append("|---|---|---|---|---|")
    for method, one in found.items():
        seeds, tasks = one.correlation.seeds, one.correlation.tasks
        lines.append(_row(method, one.correlation.text(), one.regret.text(), str(seeds), str(tasks)))
    return lines


def _values(records: Sequence[Record]) -> list[str]:
    lines = ["## Values", "", _row("task", "dataset", "policy", "method", "values by seed", "truth")]
    lines.append("|---|---|---|---|---|---|")
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        cell = record["experiment"]
        groups.setdefault((cell["task"], cell["dataset"], cell["policy"], cell["method"]), []).append(record)
    for key, group in sorted(groups.items()):
        ordered = sorted(group, key=lambda r: int(r["experiment"]["seed"]))
        values = ", ".join("diverged" if r["value"] is None else f"{r['value']:.1f}" for r in ordered)
        lines.append(_row(*key, values, f"{group[0]['truth']['value']:.1f}"))
    return lines


def _policies(portraits: Mapping[str, Any]) -> list[str]:
    lines = [
        "## Policies",
        "",
        _row("task", "level", "actor", "return", "sd", "episodes"),
        "|---|---|---|---|---|---|",
    ]
    for task, portrait in portraits.items():
        for level, p in portrait["policies"].items():
            lines.append(
                _row(task, level, p["actor"], f"{p['return']:.1f}", f"{p['sd']:.1f}", str(p["episodes"]))
            )
    return lines
