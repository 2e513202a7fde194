"""Records on disk: one JSON a cell, written aside, synced and renamed, so that a file that is there is whole.

results/<profile>/<task>/<dataset>/<policy>/<method>-<seed>.json        a finished cell
results/<profile>/failed/<task>/...                                     what went wrong, until the cell succeeds
"""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bcrl.errors import BadInput
from bcrl.writing import atomic_write
from bcrl_bench.experiments.profile import Experiment

FAILED = "failed"
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Records:
    """The folder of a profile's results."""

    folder: Path

    def path(self, experiment: Experiment) -> Path:
        """Where a finished cell lies."""
        return self.folder / f"{experiment.name}.json"

    def failure(self, experiment: Experiment) -> Path:
        """Where a failed cell's error lies."""
        return self.folder / FAILED / f"{experiment.name}.json"

    def read(self, experiment: Experiment) -> dict[str, Any] | None:
        """A finished cell, or None."""
        path = self.path(experiment)
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def keep(self, experiment: Experiment, record: Mapping[str, Any]) -> None:
        """Write a finished cell; its failure, if there was one, is past."""
        write_json(self.path(experiment), record)
        self.failure(experiment).unlink(missing_ok=True)

    def keep_failure(self, experiment: Experiment, error: str) -> None:
        """Write down what went wrong."""
        write_json(self.failure(experiment), {"error": error, **origin()})

    def all(self) -> list[dict[str, Any]]:
        """Every finished cell, in the order of the files' names; failures lie one folder deeper.

        Cells that should share a world are refused where they do not: a machine may simulate other episodes, and actors be
        replaced. Last bits (of logged densities, say) do differ between processors, so hashes would refuse too much.
        """
        paths = sorted(self.folder.glob("*/*/*/*.json"))
        found = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
        worlds: dict[tuple[str, ...], tuple[str, Path]] = {}
        for path, record in zip(paths, found, strict=True):
            cell = record["experiment"]
            earned = {"dataset": record["dataset"]["mean_return"], "policy": record["truth"]["value"]}
            for name, mark in ((name, f"{value:.9g}") for name, value in earned.items()):
                same, first = worlds.setdefault((name, cell["task"], cell[name]), (mark, path))
                if same != mark:
                    raise BadInput(
                        f"{path} and {first} are of the same {name} by name, but it earns {mark} in one and {same} in the other. "
                        "Delete those of the older world and run them again."
                    )
        return found

    def portraits(self) -> dict[str, Any]:
        """What was written about each task."""
        paths = sorted(self.folder.glob("*/task.json"))
        return {path.parent.name: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Whole or not at all, whatever is killed when."""
    with atomic_write(path) as file:
        file.write(_text(content).encode())


def _text(content: Mapping[str, Any]) -> str:
    """One line for each entry: short files that still differ readably."""
    lines = [f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in content.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def origin() -> dict[str, Any]:
    """Versions of the code that made a record; `changed` when its source was not as committed."""
    packages = {name: version(name) for name in ("bcrl", "torch", "numpy", "scipy", "mujoco", "dm_control")}
    return {"commit": _git("rev-parse", "HEAD"), "changed": bool(_git("status", "--porcelain", "."))} | {
        "versions": packages
    }


def _git(*words: str) -> str | None:
    """What git says about the package's source; None where it is no checkout, or git is not there."""
    root = HERE.parents[1]
    try:
        said = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return said.stdout.strip() if said.returncode == 0 else None
