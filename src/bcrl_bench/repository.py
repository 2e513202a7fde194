"""The checkout that this package runs from: where results lie, and which code made them."""

import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bcrl import __version__

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


def origin() -> dict[str, Any]:
    """Versions of the code that made a record; `changed` when its source was not as committed."""
    others = ("torch", "numpy", "scipy", "mujoco", "dm_control")
    packages = {"bcrl": __version__} | {name: version(name) for name in others}
    changed = bool(_git("status", "--porcelain", "src"))
    return {"commit": _git("rev-parse", "HEAD"), "changed": changed, "versions": packages}


def _git(*words: str) -> str | None:
    """What git says about the source; None where this is no checkout, or git is not there."""
    try:
        said = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return said.stdout.strip() if said.returncode == 0 else None
