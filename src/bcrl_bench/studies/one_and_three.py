"""A pass of LSPE's moments by one process, by a cluster of one worker and by one of three; an empty task.

    python -m bcrl_bench.studies.one_and_three           # writes results/one_and_three.json

A million rows of an exact world, 64 random features, one policy. Seconds on the clock, the least of three: on
a machine of two cores three workers cannot be three times as fast, and Ray itself wants a part of them.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch

import bcrl
from bcrl.data.storage.folder import save, write_json
from bcrl.estimators.lspe.fit import moments_by_block
from bcrl.evaluation import _versions
from bcrl.policies.policy import resolve_policy
from bcrl.question import Question
from bcrl.representations.features import Encoded
from bcrl.scale.cluster import cluster
from bcrl.training import Run
from bcrl_bench.repository import RESULTS, origin
from bcrl_bench.speed.linear import best
from bcrl_bench.studies.ray_nodes import ray_nodes
from bcrl_bench.studies.three_nodes import half
from bcrl_bench.worlds import lqr

EPISODES, LENGTH, DIM, ROUNDS, EMPTY = 10_000, 100, 64, 3, 200
COMMAND = "python -m bcrl_bench.studies.one_and_three"


def nothing(item):
    return item


def on(count, encoded, actions):
    """Seconds of a pass, and of an empty task, on so many workers."""
    with ray_nodes(count) as (nodes, _), cluster(nodes.address, _versions) as crew:
        crew.each(nothing, range(2 * count))  # the workers begin
        passed = best(lambda: moments_by_block(encoded, [actions], crew=crew), ROUNDS)
        empty = best(lambda: crew.each(nothing, range(EMPTY)), ROUNDS) / EMPTY
    return {"pass_seconds": passed, "empty_task_seconds": empty}


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        log = bcrl.load_dataset(save(lqr().dataset(EPISODES, LENGTH, 0), Path(place) / "log"))
        question = Question.of(log, {"half": resolve_policy(log, bcrl.load_policy(half))}, discount=0.9)
        actions = question.targets["half"].actions
        fitted = bcrl.RandomFeatures(dim=DIM).fit(log, [actions], discount=0.9, seed=0, run=Run())
        encoded = Encoded.of(log, fitted)
        alone = best(lambda: moments_by_block(encoded, [actions]), ROUNDS)
        one, three = (on(count, encoded, actions) for count in (1, 3))
    record = {"command": COMMAND, "commit": origin()["commit"], "rows": len(log), "dim": DIM}
    record |= {"one_process_seconds": alone, "one_worker": one, "three_workers": three}
    write_json(RESULTS / "one_and_three.json", record)
    sys.stdout.write(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
