"""What a running grid shows: a live table on a terminal, a line for each finished cell elsewhere; time left
in both.
"""

import sys
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from bcrl_bench.experiments.profile import Experiment
from bcrl_bench.experiments.protocol import mean_error
from bcrl_bench.experiments.records import Records


class LiveTable:
    """Counts by method, and the time left: the mean wall time of each method's finished cells, over the
    workers.
    """

    def __init__(
        self, records: Records, experiments: Sequence[Experiment], todo: Sequence[Experiment], workers: int
    ) -> None:
        self.left = list(todo)
        self.total = len(todo)
        self.workers = workers
        self.seconds: dict[str, list[float]] = {}
        self.errors: dict[str, list[float]] = {}
        self.failed: dict[str, int] = {}
        self.methods = list(dict.fromkeys(experiment.method for experiment in experiments))
        past = set(experiments) - set(todo)
        for experiment, record in records.finished().items():
            if experiment in past:
                self._count(experiment, record)
        self.began, self.last = time.monotonic(), ""
        self.live = Live(self._table(), console=Console(stderr=True), auto_refresh=False)

    def __enter__(self) -> "LiveTable":
        if sys.stderr.isatty():
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if sys.stderr.isatty():
            self.live.stop()

    def __call__(self, experiment: Experiment, record: dict[str, Any] | None, error: str | None) -> None:
        self.left.remove(experiment)
        if record is not None:
            self._count(experiment, record)
            line = _sentence(record)
        else:
            self.failed[experiment.method] = self.failed.get(experiment.method, 0) + 1
            line = f"failed: {str(error).strip().splitlines()[-1]}"
        done = self.total - len(self.left)
        self.last = f"[{done}/{self.total}] {experiment.name}: {line}, {self._time_left()} left"
        if sys.stderr.isatty():
            self.live.update(self._table(), refresh=True)
        else:
            print(self.last, file=sys.stderr, flush=True)

    def _count(self, experiment: Experiment, record: dict[str, Any]) -> None:
        self.seconds.setdefault(experiment.method, []).append(record["timings"]["wall"])
        if record["value"] is not None:
            self.errors.setdefault(experiment.method, []).append(mean_error(record))

    def _time_left(self) -> str:
        known = [second for seconds in self.seconds.values() for second in seconds]
        if not known:
            return "unknown time"
        usual = sum(known) / len(known)
        means = {name: sum(seconds) / len(seconds) for name, seconds in self.seconds.items()}
        return _clock(sum(means.get(cell.method, usual) for cell in self.left) / self.workers)

    def _table(self) -> Table:
        gone = _clock(time.monotonic() - self.began)
        title = f"{self.total - len(self.left)} of {self.total} cells, {gone} gone, "
        table = Table(title=title + f"{self._time_left()} left", caption=self.last, title_justify="left")
        for name in ("method", "done", "left", "failed", "mean error", "mean time"):
            table.add_column(name, justify="left" if name == "method" else "right")
        for method in self.methods:
            seconds, errors = self.seconds.get(method, []), self.errors.get(method, [])
            left = sum(cell.method == method for cell in self.left)
            table.add_row(
                method,
                str(len(seconds)),
                str(left),
                str(self.failed.get(method, 0)),
                f"{sum(errors) / len(errors):.0%}" if errors else "",
                f"{sum(seconds) / len(seconds):.0f} s" if seconds else "",
            )
        return table


def _sentence(record: dict[str, Any]) -> str:
    value = "no value" if record["value"] is None else f"{record['value']:.4g}"
    truth, seconds = record["truth"]["value"], record["timings"]["wall"]
    return f"{value} (truth {truth:.4g}), {record['verdict']}, {seconds:.0f} s"


def _clock(seconds: float) -> str:
    minutes = int(seconds // 60)
    return (
        f"{minutes // 60} h {minutes % 60:02d} min"
        if minutes >= 60
        else f"{minutes} min {seconds % 60:02.0f} s"
    )
