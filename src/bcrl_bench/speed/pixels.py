"""Shuffled batches of stacked pixel pairs from a folder on disk, against bare fancy indexing in memory.

100,000 transitions of 84 x 84 x 3 frames (2.1 GB in a temporary folder, deleted afterwards), batches of 256
pairs of three-frame stacks, uint8. Ours makes one whole pass; the reference holds all frames in memory and
takes the first `ROUNDS` batches of the same order. Each runs in a process of its own, so the memory figure is
that of reading alone.

    python -m benchmarks.pixels
"""

import json
import multiprocessing
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from bcrl.data.batches import shuffled
from bcrl.data.storage.folder import open_folder
from bcrl.data.storage.writer import Writer
from bcrl_bench.speed.reference import pixels_bare

TRANSITIONS, LENGTH, SIZE, STACK, BATCH, ROUNDS = 100_000, 500, 84, 3, 256, 100


def measure(transitions: int = TRANSITIONS, folder: Path | None = None) -> dict[str, dict[str, float | str]]:
    """Pairs a second, ours from disk and the reference from memory; anonymous memory of the process that
    reads ours.
    """
    where = Path(tempfile.mkdtemp(prefix="bcrl-pixels-", dir=folder))
    try:
        _in_child(write, where / "data", transitions)
        ours = _in_child(rate_of_folder, where / "data")
        reference, gather = _in_child(rate_of_memory, where / "data")
    finally:
        shutil.rmtree(where)
    return {
        "pixel_pairs_vs_bare": {
            "ratio": ours["rate"] / reference,
            "ours": ours["rate"],
            "reference": reference,
            "unit": "stacked pairs a second",
            "rss_anon_mb": ours["rss_anon_mb"],
            "ratio_to_gather_without_stacking": ours["rate"] / gather,
        }
    }


def write(folder: Path, transitions: int) -> None:
    """Random frames in episodes of 500 steps."""
    generator = np.random.default_rng(0)
    with Writer(folder, stack=STACK, block=50) as writer:
        for _ in range(transitions // LENGTH):
            writer.append(
                {
                    "observations": {
                        "pixels": generator.integers(0, 256, (LENGTH + 1, SIZE, SIZE, 3), dtype=np.uint8)
                    },
                    "actions": generator.uniform(-1, 1, (LENGTH, 6)).astype(np.float32),
                    "rewards": generator.random(LENGTH),
                    "terminated": False,
                }
            )


def rate_of_folder(folder: Path) -> dict[str, float]:
    """The first whole pass in shuffled batches after opening: every page is mapped on the way."""
    dataset = open_folder(folder)
    generator = np.random.default_rng(0)
    clock, seen, anonymous = time.perf_counter(), 0, 0.0
    for number, batch in enumerate(shuffled(dataset, BATCH, generator)):
        seen += len(batch.index)
        if number % 50 == 10:
            anonymous = max(anonymous, rss_anon_mb())
    assert seen == len(dataset)
    return {"rate": seen / (time.perf_counter() - clock), "rss_anon_mb": anonymous}


def rate_of_memory(folder: Path) -> tuple[float, float]:
    """The reference, and its gather alone, over batches of the same order with all frames in memory."""
    dataset = open_folder(folder)
    frames = np.array(dataset.observations["pixels"])
    rates = []
    for function in (pixels_bare.pairs, pixels_bare.gather):
        order = np.random.default_rng(0).permutation(len(dataset))[: ROUNDS * BATCH]
        clock = time.perf_counter()
        for first in range(0, len(order), BATCH):
            rows = dataset.rows[order[first : first + BATCH]]
            function(frames, rows, dataset.first_row, STACK)
        rates.append(len(order) / (time.perf_counter() - clock))
    return rates[0], rates[1]


def rss_anon_mb() -> float:
    """Anonymous resident memory of this process, from /proc (kB there)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon:"))


def _in_child(function, *arguments):
    """Run in a fresh process, so that memory figures and page tables are its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
