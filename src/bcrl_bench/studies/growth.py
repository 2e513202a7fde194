"""How time and memory grow: with rows (memory-mapped), features, columns, policies and discrete actions.

    python -m bcrl_bench.studies.growth

A quarter of a core-hour; writes results/growth.json, and from it growth.md and growth.png, and goes on where
it stopped. Each row is one answer with its error budget by random features, in a process of its own. Its
memory is the largest anonymous memory while it is asked: what the page cache holds of a mapped file is not
counted. A learned representation adds its training, which does not grow with rows.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import bcrl
from bcrl.data.storage.folder import open_folder
from bcrl.data.storage.writer import Writer
from bcrl.writing import atomic_write
from bcrl_bench.processes import one_thread
from bcrl_bench.repository import RESULTS
from bcrl_bench.studies.study import Row, Study

LENGTH = 500  # steps of an episode
SIZES = {
    "rows": (10_000, 100_000, 1_000_000, 10_000_000),
    "features": (32, 128, 512, 1024),
    "columns": (10, 100, 1_000, 10_000),
    "policies": (1, 4, 16, 100),
    "actions": (2, 25, 1_000),
}
STUDY = Study("growth", "python -m bcrl_bench.studies.growth", key=("axis", "size"))


# What is asked where an axis does not say otherwise; actions are discrete ones, 0: two continuous ones.
PLAIN = {"rows": 20_000, "features": 128, "columns": 8, "policies": 1, "actions": 0}


def setting_of(axis: str, size: int) -> SimpleNamespace:
    """The plain setting with one axis changed."""
    # Ten thousand columns of twenty thousand rows would be a question about the disk.
    fewer = {"rows": 4_000} if axis == "columns" else {}
    return SimpleNamespace(**PLAIN | fewer | {axis: size})


@dataclass(frozen=True)
class Pull:
    """Continuous actions that pull the first columns towards zero."""

    strength: float
    reads: None = None

    def act(self, states: Any) -> Any:
        return np.clip(-self.strength * states[:, :2], -1.0, 1.0).astype(np.float32)


@dataclass(frozen=True)
class Soft:
    """Some probability for every one of many actions."""

    actions: int
    strength: float
    reads: None = None

    def probabilities(self, states: Any) -> Any:
        scores = self.strength * np.outer(states[:, 0], np.linspace(-1.0, 1.0, self.actions))
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        return chances / chances.sum(axis=1, keepdims=True)


def write_log(setting: SimpleNamespace, folder: Path) -> None:
    """Columns that wander; actions push the first two; the reward counts them."""
    rng = np.random.default_rng(0)
    with Writer(folder, num_actions=setting.actions or None, block=200) as writer:
        for _ in range(setting.rows // LENGTH):
            noise = rng.standard_normal((LENGTH + 1, setting.columns), dtype=np.float32)
            pushes = rng.uniform(-1.0, 1.0, (LENGTH, 2)).astype(np.float32)
            noise[1:, :2] += 0.5 * pushes
            states = np.cumsum(noise, axis=0) / np.sqrt(np.arange(1, LENGTH + 2, dtype=np.float32))[:, None]
            scale = 0.5 * (pushes[:, 0] + 1.0) * setting.actions
            writer.append(
                {
                    "observations": states,
                    "actions": np.minimum(scale.astype(np.int64), setting.actions - 1)
                    if setting.actions
                    else pushes,
                    "rewards": np.exp(-np.square(states[:-1, :2]).mean(axis=1)).astype(np.float64),
                    "terminated": False,
                }
            )


def answer(setting: SimpleNamespace, folder: Path) -> Row:
    """Core-seconds and memory of one call about this log."""
    data = open_folder(folder)
    strengths = np.linspace(0.2, 0.8, setting.policies)
    make = (lambda s: Soft(setting.actions, s)) if setting.actions else Pull
    policies = {f"p{number}": make(float(s)) for number, s in enumerate(strengths)}
    method = bcrl.LSPE(bcrl.RandomFeatures(dim=setting.features))
    began = time.process_time()
    _, memory = with_memory(
        lambda: bcrl.compare(data, policies, discount=0.95, methods={"random": method}, next_steps=None)
    )
    return {"core_seconds": round(time.process_time() - began, 2), "megabytes": round(memory)}


def with_memory(call: Callable[[], Any]) -> tuple[Any, float]:
    """What the call gives, and this process's largest anonymous memory meanwhile, in megabytes."""
    done, seen = threading.Event(), [anonymous()]

    def watch() -> None:
        while not done.wait(0.02):
            seen.append(anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        found = call()
    finally:
        done.set()
        watcher.join()
    return found, max(seen)


def anonymous() -> float:
    """Megabytes of this process that no file backs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("RssAnon"))) / 1024


def row(axis: str, size: int) -> Row:
    """One point, by a process of its own."""
    with one_thread(), tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", __spec__.name, axis, str(size), folder]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"growth of {axis} at {size} failed:\n{done.stderr[-2000:]}")
    return {"axis": axis, "size": size} | json.loads(done.stdout.splitlines()[-1])


def table(rows: list[Row]) -> str:
    """results/growth.md."""
    lines = ["# How time and memory grow", "", f"`{STUDY.command}`: {_LEGEND}", ""]
    lines += [
        "| axis | size | core-seconds | times the one before, at times its size | MB |",
        "|---|---|---|---|---|",
    ]
    for axis in SIZES:
        before: Row | None = None
        for one in sorted((r for r in rows if r["axis"] == axis), key=lambda r: r["size"]):
            grown = ""
            if before is not None:
                times = one["core_seconds"] / before["core_seconds"], one["size"] / before["size"]
                grown = "{:.1f} at {:g}".format(*times)
            lines.append(
                f"| {axis} | {one['size']:,} | {one['core_seconds']:g} | {grown} | {one['megabytes']:,} |"
            )
            before = one
    return "\n".join(lines) + "\n"


_LEGEND = (
    "one answer with its error budget by random features, one thread. Where an axis does not say otherwise: "
    "20,000 rows, 128 features, 8 columns, one policy, two continuous actions; along columns 4,000 rows. "
    "MB: the largest anonymous memory, torch's own 200 included; pages of the mapped log do not count."
)


def figure(rows: list[Row], path: Path) -> None:
    """results/growth.png: core-seconds and megabytes along every axis."""
    from bcrl_bench.experiments.plots import panels

    drawn, axes = panels(len(SIZES), columns=len(SIZES))
    for panel, axis in zip(axes, SIZES, strict=True):
        own = sorted((r for r in rows if r["axis"] == axis), key=lambda r: r["size"])
        sizes = [r["size"] for r in own]
        panel.loglog(sizes, [r["core_seconds"] for r in own], "o-", color="#0072B2", label="core-seconds")
        panel.loglog(sizes, [r["megabytes"] for r in own], "s--", color="#D55E00", label="MB")
        panel.set_xlabel(axis, fontsize=9)
        panel.tick_params(labelsize=7)
        panel.spines[["top", "right"]].set_visible(False)
    axes[0].legend(fontsize=7, frameon=False)
    drawn.savefig(path, dpi=150, metadata={"Software": None})


def main(arguments: list[str]) -> None:
    if arguments:
        axis, size, folder = arguments
        setting, log = setting_of(axis, int(size)), Path(folder) / "log"
        write_log(setting, log)
        print(json.dumps(answer(setting, log)))
        return
    rows = STUDY.run([(axis, size) for axis, sizes in SIZES.items() for size in sizes], row)
    with atomic_write(RESULTS / "growth.md") as file:
        file.write(table(rows).encode())
    figure(rows, RESULTS / "growth.png")


if __name__ == "__main__":
    main(sys.argv[1:])
