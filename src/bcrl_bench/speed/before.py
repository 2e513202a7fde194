"""The default answer against that of commit 1cdf397, which had no error budget: whole answers, by turns.

    python -m bcrl_bench.speed.run before       three core-minutes

Each side runs in a process of its own, on the same 40,000 rows, with the package of its own commit.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from bcrl_bench.repository import ROOT
from bcrl_bench.speed.answers import make_dataset
from bcrl_bench.speed.clock import row

COMMIT = "1cdf397"
# Run by either commit's package; argument: the file of the log.
_ASK = """
import sys, time
import numpy as np, torch
torch.set_num_threads(1)
import bcrl
from bcrl.data.dataset import Dataset

a = np.load(sys.argv[1])
count = len(a["rewards"])
data = Dataset(
    observations={"observation": a["observations"]}, actions=a["actions"], rewards=a["rewards"],
    terminated=np.zeros(count, dtype=bool), truncated=a["truncated"], offsets=a["offsets"], single=True,
)


def policy(states):
    return np.clip(-0.25 * states[:, :6], -1.0, 1.0).astype(np.float32)


began = time.process_time()
answer = bcrl.evaluate(data, policy, discount=0.99)
print(time.process_time() - began, answer.value)
"""


def measure(rounds: int = 1) -> dict[str, dict[str, object]]:
    """Core-seconds of both, the least over rounds, and both values."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", COMMIT, "src"], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        arrays = Path(folder) / "log.npz"
        _save(arrays)
        sides = {"before": Path(folder) / "src", "now": ROOT / "src"}
        found: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
        for _ in range(rounds):
            for side, source in sides.items():
                found[side].append(_ask(source, arrays))
    before, now = (min(found[side]) for side in ("before", "now"))
    values = {"value_before": before[1], "value_now": now[1]}
    return {
        "answer_vs_before": row(now[0], before[0], before[0] / now[0], "core-seconds an answer", **values)
    }


def _save(path: Path) -> None:
    data = make_dataset()
    np.savez(
        path,
        observations=data.observations["observation"],
        actions=data.actions,
        rewards=data.rewards,
        truncated=data.truncated,
        offsets=data.offsets,
    )


def _ask(source: Path, arrays: Path) -> tuple[float, float]:
    one = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", _ASK, str(arrays)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | one | {"PYTHONPATH": str(source)},
    )
    seconds, value = done.stdout.split()[-2:]
    return float(seconds), float(value)
