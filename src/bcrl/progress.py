"""Progress on standard error after two seconds: a live line on a terminal, else a line every ten seconds."""

import sys
import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from bcrl.errors import printable

_PATIENCE = 2.0
_PLAIN_EVERY = 10.0
_NOT_LOSSES = {"stage", "step", "steps", "rate", "left"}


def watched() -> bool:
    """Whether a person looks: at a terminal, or at a notebook's cell."""
    notebook = "ipykernel" in sys.modules and hasattr(sys.stdout, "parent_header")
    return sys.stderr.isatty() or notebook


class ProgressLine:
    """Shows what `Run.show` receives: stage, step of steps, samples a second, time left, loss terms."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.began = time.monotonic()
        self.told = 0.0
        self.live: Progress | None = None
        self.tasks: dict[str, Any] = {}

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def __call__(self, news: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if self.quiet or now - self.began < _PATIENCE:
            return
        if sys.stderr.isatty():
            self._draw(news)
        elif now - self.told > _PLAIN_EVERY:
            self.told = now
            print(printable(_sentence(news)), file=sys.stderr, flush=True)

    def _draw(self, news: Mapping[str, Any]) -> None:
        if self.live is None:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[note]}"),
                TimeRemainingColumn(),
            )
            self.live = Progress(*columns, console=Console(stderr=True), transient=True)
            self.live.start()
        stage = str(news.get("stage", "working"))
        if stage not in self.tasks:
            self.tasks[stage] = self.live.add_task(
                escape(printable(stage)), total=float(news.get("steps", 1)), note=""
            )
        self.live.update(
            self.tasks[stage], completed=float(news.get("step", 0)), note=escape(printable(_losses(news)))
        )


def _losses(news: Mapping[str, Any]) -> str:
    terms = [
        f"{name} {value:.3g}"
        for name, value in news.items()
        if name not in _NOT_LOSSES and isinstance(value, float)
    ]
    rate = f"{news['rate']:.0f}/s" if "rate" in news else ""
    return "  ".join([rate, *terms[:3]])


def _sentence(news: Mapping[str, Any]) -> str:
    left = f", {news['left']:.0f} s left" if "left" in news else ""
    done = f"{news.get('step', 0):.0f} of {news.get('steps', 0)}"
    return f"{news.get('stage', 'working')}: {done}{left}  {_losses(news)}"
