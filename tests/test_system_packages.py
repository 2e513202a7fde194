"""`make test` on a machine where another apt is at work waits for it (F48)."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "system.sh"

# Says what apt says: the lists are locked at the first two calls, and an install that is not told to wait for
# the packages' lock fails. The real one needs a network, root and another apt at work.
APT = """#!/usr/bin/env bash
echo "$*" >> {folder}/asked
case "$*" in
  update) [ "$(grep -c '^update$' {folder}/asked)" -gt 2 ] && exit 0 ;;
  *DPkg::Lock::Timeout=*install*python3-venv*) exit 0 ;;
esac
echo "E: {said}" >&2
exit 100
"""


def run(folder: Path, said: str) -> tuple[subprocess.CompletedProcess, list[str]]:
    """The script, with an apt of ours; python3-venv is what is missing."""
    bin_ = folder / "bin"
    bin_.mkdir()
    pass_on = '#!/bin/sh\n[ "$1" = -n ] && shift\nexec "$@"\n'
    tools = {"apt-get": APT.format(folder=folder, said=said), "sudo": pass_on, "sleep": "#!/bin/sh\n"}
    for name, text in tools.items():
        (bin_ / name).write_text(text)
        (bin_ / name).chmod(0o755 | stat.S_IXUSR)
    path = {"PATH": f"{bin_}:{os.environ['PATH']}", "PYTHON": "false"}
    ran = subprocess.run([SCRIPT, "venv"], env=os.environ | path, capture_output=True, text=True, check=False)
    return ran, (folder / "asked").read_text().splitlines()


@pytest.mark.parametrize("said", ["Could not get lock /var/lib/apt/lists/lock", "Unable to lock directory"])
def test_another_apt_at_work_is_waited_for(said, tmp_path):
    ran, asked = run(tmp_path, said)
    assert ran.returncode == 0, ran.stderr
    assert asked[:3] == ["update"] * 3 and len(asked) == 4


def test_another_fault_is_told_at_once(tmp_path):
    ran, asked = run(tmp_path, "Temporary failure resolving the archive")
    assert ran.returncode == 1 and asked == ["update"]
    assert ran.stderr.splitlines()[-1].startswith("bcrl needs these system packages")
