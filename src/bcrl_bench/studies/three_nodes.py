"""The default method on a cluster of three nodes that loses two of them, against one process.

    python -m bcrl_bench.studies.three_nodes [ROWS]      # writes results/three_nodes.json

An exact world's log in 64 Parquet shards, converted, then asked once in one process and once on three nodes
of one processor each (Ray's own cluster of processes on this machine). The three share every training;
one node is killed in the first training once it has left a checkpoint, so that two go on, and one in the
moments pass. The recipe is the default's with a narrow network and few steps (METHOD): this is about sharing
the work, not about the value.
"""

import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import bcrl
from bcrl.data.convert.convert import convert
from bcrl.data.storage.folder import write_json
from bcrl_bench.repository import RESULTS, origin
from bcrl_bench.studies.ray_nodes import ray_nodes
from bcrl_bench.worlds import lqr

ROWS, SHARDS, LENGTH = 2_000_000, 64, 100
METHOD = "LSPE(BellmanComplete(dim=32, steps=60, evaluations=6, batch_size=1024, head=Head(hidden=64)))"
COMMAND = "python -m bcrl_bench.studies.three_nodes"


def half(observations):
    """Half of the first numbers of the observation, as many as the action has."""
    return -0.2 * observations[:, : lqr().b.shape[1]]


def write(folder, rows):
    """The log, a shard at a time."""
    world, folder = lqr(), Path(folder)
    folder.mkdir()
    for shard in range(SHARDS):
        part = world.dataset(max(2, rows // SHARDS // LENGTH), LENGTH, shard)
        seen, chosen = part.observations["observation"][part.rows], part.actions
        columns = {f"observation_{k}": seen[:, k] for k in range(seen.shape[1])}
        columns |= {f"action_{k}": chosen[:, k] for k in range(chosen.shape[1])}
        columns |= {"reward": part.rewards, "episode": part.episode_of + shard * 10_000_000}
        columns |= {"truncated": part.truncated}
        pyarrow.parquet.write_table(pa.table(columns), folder / f"{shard:02d}.parquet")


def asked(log, **where):
    began = time.perf_counter()
    estimate = bcrl.evaluate(log, half, discount=0.9, method=METHOD, next_steps=None, **where)
    told = {"value": estimate.value, "standard_error": estimate.standard_error}
    return estimate, told | {"seconds": time.perf_counter() - began}


class Workers(threading.Thread):
    """Watches the memory of all of a cluster's workers, in MB, until it is told to stop."""

    def __init__(self, mark):
        super().__init__(daemon=True)
        self.mark, self.over, self.anonymous, self.resident = mark, False, 0.0, 0.0

    def run(self):
        while not self.over:
            for place in Path("/proc").iterdir():
                if place.name.isdigit():
                    self.look(place)
            time.sleep(0.1)

    def look(self, place):
        try:
            name = (place / "cmdline").read_bytes()
            if not name.startswith(b"ray::") or self.mark.encode() not in (place / "environ").read_bytes():
                return
            lines = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
        except (OSError, ValueError):  # it is gone
            return
        self.anonymous = max(self.anonymous, int(lines["RssAnon"].split()[0]) / 1024)
        self.resident = max(self.resident, int(lines["VmHWM"].split()[0]) / 1024)


class Killer:
    """Kills one node in the first training, after a checkpoint, and one in the moments pass."""

    def __init__(self, cluster, nodes, checkpoints):
        self.cluster, self.nodes, self.checkpoints = cluster, nodes, checkpoints
        self.killed = []

    def in_training(self):
        while not any(self.checkpoints.rglob("checkpoint.pt")):
            time.sleep(0.05)
        self.kill("training 1")

    def hear(self, news):
        if news["stage"].startswith("LSPE") and len(self.killed) == 1 and news["step"] > 0:
            self.kill(f"{news['stage']}, row {news['step']}")

    def kill(self, when):
        self.killed.append(when)
        self.cluster.remove_node(self.nodes.pop(), allow_graceful=False)


def on_three_nodes(folder, kept):
    os.environ["BCRL_THREE_NODES"] = str(kept)
    with ray_nodes(3) as (cluster, nodes):
        workers, killer = Workers(str(kept)), Killer(cluster, list(nodes), kept)
        workers.start()
        threading.Thread(target=killer.in_training, daemon=True).start()
        estimate, told = asked(
            folder, ray=cluster.address, workers_per_training=3, folder=kept, save_every=0.0, show=killer.hear
        )
        workers.over = True
    about = {"killed_in": killer.killed, "worker_anonymous_mb": workers.anonymous}
    return estimate, told | about | {"worker_resident_mb": workers.resident}


def main(rows=ROWS):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write(folder / "shards", rows)
        log = convert(folder / "shards", folder / "log")
        together, three = on_three_nodes(folder / "log", folder / "kept")
        sys.stderr.write(json.dumps(three) + "\n")
        alone, one = asked(folder / "log", quiet=True)
    record = {
        "command": COMMAND,
        "commit": origin()["commit"],
        "method": METHOD,
        "rows": len(log),
        "shards": SHARDS,
        "one_process": one,
        "three_nodes": three,
        "relative_difference": abs(together.value / alone.value - 1.0),
        "largest_difference_of_influence": float(np.abs(together.influence - alone.influence).max()),
    }
    write_json(RESULTS / "three_nodes.json", record)
    sys.stdout.write(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
