"""Runs cases in forks of one warm process, and says what each broke of what is promised.

Exit 0, or exit 2 and one printable line; no traceback, no hang, no more than 2 GB, nothing of a file that was
not named in any output.
"""

import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# What a command imports, imported once; a fork has it at no cost.
import h5py
import numpy as np
import onnxruntime  # noqa: F401
import pyarrow.csv
import pyarrow.parquet  # noqa: F401
import torch

import bcrl.commands.compare
import bcrl.commands.doctor
import bcrl.commands.evaluate
import bcrl.commands.guard
import bcrl.commands.report
import bcrl.commands.trial
import bcrl.next_steps.guard
import bcrl.next_steps.trial
import bcrl.report  # noqa: F401
from bcrl.cli import main
from bcrl.methods import parse_method
from fuzz import cases, objects, seeds
from fuzz.watch import Watch

# Of the processor, since a case that shares its core is slow and no hang; WALL ends one that waits for ever.
SECONDS, WALL, MEMORY = 20.0, 120.0, 2 * 2**30
DECOY = b"the-decoy's-own-bytes"


class Ran(NamedTuple):
    """What a command did: its exit code (None: it had to be ended), what it printed, its time and memory."""

    code: int | None
    out: bytes
    err: bytes
    seconds: float
    peak: int


def prepare(base: Path) -> None:
    """Valid inputs, decoys beside them, and everything imported that a command may import."""
    os.environ["MINARI_DATASETS_PATH"] = str(base / "store")
    torch.set_num_threads(1)
    seeds.write_all(base)
    for text in seeds.METHODS:
        parse_method(text)
    (base / "decoy.bin").write_bytes(DECOY * 20)
    np.save(base / "decoy.npy", np.frombuffer(DECOY * 20, np.uint8))
    with h5py.File(base / "decoy.hdf5", "w") as file:
        file["secret"] = np.frombuffer(DECOY * 20, np.uint8)


def run(words: list[str], here: Path) -> Ran:
    """One command in a fork."""
    out, err = here / ".out", here / ".err"
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_the_command(words, here, out, err)
    hung = False
    while True:
        done, status, used = os.wait4(child, os.WNOHANG)
        if done:
            break
        if processor_seconds(child) >= SECONDS or time.monotonic() - began >= WALL:
            hung = True
            os.killpg(child, signal.SIGKILL)
            _, status, used = os.wait4(child, 0)
            break
        time.sleep(0.004)
    code = None if hung else os.waitstatus_to_exitcode(status)
    spent = time.monotonic() - began
    return Ran(code, out.read_bytes(), err.read_bytes(), spent, used.ru_maxrss * 1024)


def processor_seconds(process: int) -> float:
    """What a running process has used so far, with its ended children."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _be_the_command(words: list[str], here: Path, out: Path, err: Path) -> None:
    """Never returns."""
    code = 1
    try:
        os.setsid()
        os.chdir(here)
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for the life of the fork
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        code = objects.main(words[1:]) if words[0] == "python" else main(words)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def broken(ran: Ran, here: Path) -> list[str]:
    """What the command broke of what is promised."""
    found = []
    if ran.code is None:
        found.append(f"hung for {ran.seconds:.0f} s")
    elif ran.code not in (0, 2):
        found.append(f"exit {ran.code}")
    if b"Traceback" in ran.err:
        found.append(ran.err.decode("utf-8", "replace").strip().splitlines()[-1][:200])
    for name, text in (("stdout", ran.out), ("stderr", ran.err)):
        if not printable(text):
            found.append(f"{name} has characters that cannot be printed: {text[:200]!r}")
    lines = ran.err.decode("utf-8", "replace").strip().splitlines()
    told_by_doctor = ran.code == 2 and not lines and b"not fit for evaluation" in ran.out
    if ran.code == 2 and len(lines) != 1 and not told_by_doctor:
        found.append(f"exit 2 with {len(lines)} lines: {lines[:3]}")
    if ran.peak > MEMORY + 2**30:
        found.append(f"{ran.peak / 2**30:.1f} GB")
    written = [path for path in here.rglob("*") if path.is_file() and not path.is_symlink()]
    if any(DECOY in path.read_bytes() for path in written):
        found.append("a decoy's bytes came out")
    return found


def printable(text: bytes) -> bool:
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return all(c.isprintable() or c == "\n" for c in decoded)


def fuzz(count: int, seed: int, *, first: int = 0, keep: Path | None = None) -> Iterator[str]:
    """Run cases; a line for each that broke something. `keep` gets the folders of those."""
    with tempfile.TemporaryDirectory(prefix="fuzz") as place:
        base = Path(place) / "base"
        base.mkdir()
        prepare(base)
        watch = Watch(sorted(base.glob("decoy.*")))
        for number in range(first, first + count):
            here = Path(place) / "case"
            here.mkdir()
            words = cases.make(seed, number, base, here)
            ran = run(words, here)
            found = broken(ran, here)
            if watch.opened():
                found.append("a file was opened that was not named")
            if found:
                kind = cases.pick_kind(seed, number).__name__
                shown = re.sub(r"[^ -~]", "?", " ".join(words))[:300]
                yield f"case {seed}/{number} ({kind}): {'; '.join(found)} | bcrl {shown}"
                if count == 1:
                    yield ran.err.decode("utf-8", "replace")
                if keep is not None:
                    shutil.copytree(here, keep / f"{seed}-{number}", symlinks=True, ignore=_no_fifo)
            shutil.rmtree(here)
        watch.close()


def _no_fifo(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_fifo()]


if __name__ == "__main__":
    many, chosen = int(sys.argv[1]), int(sys.argv[2])
    start = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    begun, bad = time.monotonic(), 0
    for line in fuzz(many, chosen, first=start):
        bad += 1
        print(line, flush=True)
    spent = time.monotonic() - begun
    print(f"{many} cases of seed {chosen} from {start}: {bad} broke something; {spent:.0f} s")
    sys.exit(1 if bad else 0)
