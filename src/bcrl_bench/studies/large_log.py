"""Ten million rows of 20 columns, converted and evaluated: time, and the most anonymous memory at any moment.

    python -m bcrl_bench.studies.large_log [ROWS]        # writes results/large_log.json

The log is that of bcrl_bench/speed/convert.py, a million rows at a time: a .parquet file of 1.5 GB. Each
step runs in a process of its own on one thread, and its parent reads /proc/PID/status fifty times a second:
RssAnon is what it holds itself; pages of the mapped folder are not counted.
"""

import json
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from bcrl.data.storage.folder import write_json
from bcrl_bench.repository import RESULTS, origin
from bcrl_bench.speed.convert import EPISODE, make_table

ROWS, AT_ONCE = 10_000_000, 1_000_000
METHOD, DISCOUNT = "LSPE(RandomFeatures(dim=256))", 0.9
COMMAND = "python -m bcrl_bench.studies.large_log"


def write(path, rows):
    """The table, with episodes numbered on."""
    writer = None
    for first in range(0, rows, AT_ONCE):
        table = make_table(min(AT_ONCE, rows - first), seed=first)
        number = pa.array(np.asarray(table["episode"]) + first // EPISODE)
        table = table.set_column(table.column_names.index("episode"), "episode", number)
        writer = writer or pyarrow.parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def policy(observations):
    """Two actions: half of the first two numbers."""
    return 0.5 * observations[:, :2]


def converted(path, folder):
    from bcrl.data.convert.convert import convert

    return {"rows": len(convert(path, folder))}


def examined(folder):
    import bcrl
    from bcrl.doctor import examine

    return {"findings": len(examine(bcrl.load_dataset(folder), bcrl.load_policy(policy)))}


def evaluated(folder):
    import bcrl

    estimate = bcrl.evaluate(folder, policy, discount=DISCOUNT, method=METHOD, quiet=True)
    return {"value": estimate.value, "standard_error": estimate.standard_error, "verdict": estimate.verdict}


def watched(function, *arguments):
    """What the function gives in a process of its own, its seconds, and its peak of anonymous memory."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    child = context.Process(target=_answer, args=(theirs, function, arguments))
    began, peak = time.perf_counter(), 0.0
    child.start()
    while not mine.poll(0.02):
        if not child.is_alive():
            raise RuntimeError(f"{function.__name__} died with code {child.exitcode}.")
        peak = max(peak, anonymous_mb(child.pid))
    found = mine.recv()
    child.join()
    return found | {"seconds": time.perf_counter() - began, "anonymous_mb": peak}


def _answer(pipe, function, arguments):
    import torch

    torch.set_num_threads(1)
    pipe.send(function(*arguments))


def anonymous_mb(pid):
    """RssAnon of a process, which /proc gives in kB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon:")), 0.0)


def main(rows=ROWS):
    with tempfile.TemporaryDirectory() as place:
        path, folder = Path(place) / "log.parquet", Path(place) / "log"
        write(path, rows)
        found = {
            "convert": watched(converted, path, folder),
            "doctor": watched(examined, folder),
            "evaluate": watched(evaluated, folder),
        }
    record = {"command": COMMAND, "commit": origin()["commit"], "rows": rows, "columns": 20, **found}
    write_json(RESULTS / "large_log.json", record)
    sys.stdout.write(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
