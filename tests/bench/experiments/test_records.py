"""A profile's JSON Lines: nothing lost and nothing doubled, whoever writes and whatever is killed when."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict

import pytest

from bcrl.errors import BadInput
from bcrl_bench.experiments.profile import Experiment
from bcrl_bench.experiments.records import Records

WRITER = """
import sys
from dataclasses import asdict
from pathlib import Path

import bcrl.writing
from bcrl_bench.experiments.profile import Experiment
from bcrl_bench.experiments.records import Records

records, method, count, stop = Records(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
for seed in range(count):
    if seed == stop:  # the new file is written aside, not yet in its place
        bcrl.writing.os.fsync = lambda handle: (print("here", flush=True), sys.stdin.readline())
    cell = Experiment("t", "025", "100", method, seed)
    records.keep(cell, {"experiment": asdict(cell), "long": "x" * 20_000})
"""


def write_cells(folder, method, count, stop=-1):
    words = [sys.executable, "-c", WRITER, str(folder), method, str(count), str(stop)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ))


def cell_of(seed, method="m"):
    return Experiment("t", "025", "100", method, seed)


def record_of(cell, **more):
    return {"experiment": asdict(cell), **more}


def test_a_line_for_each_cell_in_the_order_of_names(tmp_path):
    records = Records(tmp_path / "made")
    for cell in (cell_of(10), cell_of(2), cell_of(0, "a"), cell_of(2)):
        records.keep(cell, record_of(cell, value=float(cell.seed)))
    lines = (tmp_path / "made.jsonl").read_text().splitlines()
    assert [Experiment(**json.loads(line)["experiment"]) for line in lines] == [
        cell_of(0, "a"),
        cell_of(2),
        cell_of(10),
    ]
    assert list(records.finished()) == [cell_of(0, "a"), cell_of(2), cell_of(10)]


def test_a_failure_is_kept_until_its_cell_succeeds(tmp_path):
    records = Records(tmp_path / "made")
    records.keep_failure(cell_of(0), "no memory")
    records.keep_failure(cell_of(1), "no memory")
    records.keep(cell_of(0), record_of(cell_of(0)))
    assert list(records.failed()) == [cell_of(1)] and list(records.finished()) == [cell_of(0)]
    records.keep(cell_of(1), record_of(cell_of(1)))
    assert not records.failures_path.exists()


def test_two_runs_at_once_keep_all_cells_of_both(tmp_path):
    writers = [write_cells(tmp_path / "made", method, 40) for method in ("a", "b")]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    for writer in writers:
        writer.communicate()
    expected = [cell_of(seed, method) for method in ("a", "b") for seed in range(40)]
    assert list(Records(tmp_path / "made").finished()) == expected
    assert len((tmp_path / "made.jsonl").read_text().splitlines()) == 80


def test_a_run_killed_while_it_writes_leaves_the_file_before(tmp_path):
    writer = write_cells(tmp_path / "made", "a", 5, stop=3)
    assert writer.stdout.readline() == b"here\n"
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    records = Records(tmp_path / "made")
    assert list(records.finished()) == [cell_of(seed, "a") for seed in range(3)]
    began = time.monotonic()
    records.keep(cell_of(3, "a"), record_of(cell_of(3, "a")))  # the lock died with its holder
    assert time.monotonic() - began < 5
    assert len(records.finished()) == 4


@pytest.mark.parametrize("where", ["dataset", "policy"])
def test_records_of_two_worlds_are_not_averaged(tmp_path, where, make_record):
    records = Records(tmp_path / "made")
    for seed, earned in enumerate((50.0, 50.0 + 1e-9, 51.0)):
        record = make_record(seed=seed)
        record["dataset"] = {"mean_return": earned if where == "dataset" else 50.0}
        record["truth"]["value"] = earned if where == "policy" else 50.0
        records.keep(Experiment(**record["experiment"]), record)
        if seed < 2:  # the last bits of another processor are no other world
            assert len(records.all()) == seed + 1
    with pytest.raises(BadInput, match=f"same {where} by name"):
        records.all()
