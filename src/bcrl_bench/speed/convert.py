"""Conversion of one million rows of 20 columns into bcrl's folder against pyarrow's bare read of the file.

Ratios of rows a second of processor time, all threads counted, both in turn in one run, the median of the
pairs: convert_vs_pyarrow on .csv (at least 0.5), convert_vs_pyarrow_parquet. pyarrow leaves the table in
memory; ours is checked, laid out by episode, hashed and on disk.
"""

import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from bcrl.data.convert.convert import convert

ROWS, EPISODE, PAIRS = 1_000_000, 100, 3


def make_table(rows=ROWS, seed=0):
    """20 columns: 15 of observations, two of actions, reward, episode and the end of each episode."""
    rng = np.random.default_rng(seed)
    names = [f"observation_{number}" for number in range(15)] + ["action_0", "action_1", "reward"]
    columns = {name: rng.standard_normal(rows).round(6) for name in names}
    step = np.arange(rows)
    return pa.table(columns | {"episode": step // EPISODE, "terminated": step % EPISODE == EPISODE - 1})


def read(path):
    """pyarrow alone."""
    if path.suffix == ".csv":
        return pyarrow.csv.read_csv(path, read_options=pyarrow.csv.ReadOptions(use_threads=False))
    return pyarrow.parquet.read_table(path, use_threads=False)


def processor_seconds(call):
    began = time.process_time()
    call()
    return time.process_time() - began


def compared(path, folder, pairs=PAIRS):
    """The row of one file."""
    ours, bare = [], []
    for number in range(pairs):
        bare.append(processor_seconds(lambda: read(path)))
        into = folder / f"{path.suffix[1:]}{number}"
        ours.append(processor_seconds(lambda into=into: convert(path, into)))
    ratio = float(np.median(np.divide(bare, ours)))
    own, reference = float(np.median(ours)), float(np.median(bare))
    return {"ratio": ratio, "ours": ROWS / own, "reference": ROWS / reference, "unit": "rows/s"}


def measure():
    """Both measurements, by name."""
    with tempfile.TemporaryDirectory() as place:
        folder, table = Path(place), make_table()
        pyarrow.csv.write_csv(table, folder / "a.csv")
        pyarrow.parquet.write_table(table, folder / "a.parquet")
        del table
        return {
            "convert_vs_pyarrow": compared(folder / "a.csv", folder),
            "convert_vs_pyarrow_parquet": compared(folder / "a.parquet", folder),
        }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
