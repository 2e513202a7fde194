"""Command blocks of the documentation, run as they are printed."""

import os
import subprocess
import sys
from pathlib import Path

DISTRUSTED = 3  # what --fail-on answers, with the answer


def shell(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command block with the installed `bcrl` on the path; every command must succeed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env=os.environ | {"PATH": path, "COLUMNS": "160", "MINARI_DATASETS_PATH": str(folder / "minari")},
        capture_output=True,
        text=True,
    )
    expected = (0, DISTRUSTED) if "--fail-on" in text else (0,)
    assert done.returncode in expected, f"{text}\n{done.stdout}\n{done.stderr}"
    return done
