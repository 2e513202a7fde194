"""The main job on a Ray cluster of three nodes: the same numbers, whoever dies; and the sharing out alone."""

import contextlib
import os
import pickle
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch.distributed as dist

import bcrl
from bcrl import BadInput
from bcrl.data.storage.contents import content_hash
from bcrl.data.storage.folder import save
from bcrl.estimators.lspe import shards
from bcrl.evaluation import _versions
from bcrl.question import Question
from bcrl.scale.cluster import cluster
from bcrl.training import Crew, Run
from bcrl_bench.studies.ray_nodes import ray_nodes
from bcrl_bench.worlds import lqr

RANDOM = bcrl.LSPE(bcrl.RandomFeatures(dim=24))
TRAINED = bcrl.LSPE(bcrl.BellmanComplete(dim=8, steps=20, evaluations=2, batch_size=64), repeats=3)


@pytest.fixture
def log(tmp_path):
    """Episodes of an exact world in a folder that every process can map."""
    world = lqr()
    return world, bcrl.load_dataset(save(world.dataset(60, 12, 0), tmp_path / "log"))


def close(one, other, tolerance):
    assert one.value == pytest.approx(other.value, rel=tolerance)
    assert one.standard_error == pytest.approx(other.standard_error, rel=1e3 * tolerance)
    np.testing.assert_allclose(one.influence, other.influence, rtol=1e-6, atol=1e-9 * abs(other.value))


class Here(Crew):
    """A crew of this process alone: everything travels as it would, and is worked on in shards."""

    per_training = 1

    def each(self, work, items, shared=(), advance=lambda _: None):
        travelled = [pickle.loads(pickle.dumps((work, item, *shared))) for item in items]
        return [one[0](*one[1:]) for one in travelled]

    def sums(self, work, groups, add, shared=(), advance=lambda _: None):
        parts = [self.each(work, group, shared) for group in groups]
        return [part[0] if len(part) == 1 else add(part[0], part[1]) for part in parts]


@pytest.mark.parametrize("horizon", [None, 7])
def test_shards_of_whole_episodes_sum_to_the_whole(log, monkeypatch, horizon):
    world, dataset = log
    monkeypatch.setattr(shards, "_SHARD_ROWS", 13)
    question = Question.of(dataset, {"target": world.target}, discount=0.9, horizon=horizon)
    alone = RANDOM.estimate(question, Run())["target"]
    shared = RANDOM.estimate(question, Run(crew=Here()))["target"]
    close(shared, alone, 1e-9)
    np.testing.assert_allclose(shared.stats["effective_share"], alone.stats["effective_share"], rtol=1e-9)


def test_a_memory_mapped_dataset_travels_as_a_path(log):
    dataset = log[1]
    sent = pickle.dumps(dataset)
    assert len(sent) < 5_000 < dataset.observations["observation"].nbytes
    assert content_hash(pickle.loads(sent)) == content_hash(dataset)
    part = dataset.select(np.array([3, 1]))
    assert content_hash(pickle.loads(pickle.dumps(part))) == content_hash(part)


def test_frames_travel_as_paths_too(tmp_path):
    frames = np.random.default_rng(0).integers(0, 256, (22, 8, 8, 3), dtype=np.uint8)
    whole = bcrl.Dataset.from_episodes(
        [
            {
                "observations": frames[:11],
                "actions": np.zeros((10, 1)),
                "rewards": np.ones(10),
                "terminated": True,
            },
            {
                "observations": frames[11:],
                "actions": np.ones((10, 1)),
                "rewards": np.ones(10),
                "terminated": True,
            },
        ]
    )
    dataset = bcrl.load_dataset(save(whole, tmp_path / "log")).select(np.array([1]))
    again = pickle.loads(pickle.dumps(dataset))
    np.testing.assert_array_equal(again.observe(np.arange(11))["observation"], frames[11:])
    assert len(pickle.dumps(dataset.observations)) < 2_000


def test_an_address_where_nobody_answers_is_refused_in_one_line(log):
    world, dataset = log
    with pytest.raises(BadInput, match=r"No Ray cluster answers at '127.0.0.1:1'"):
        bcrl.evaluate(dataset, world.target, discount=0.9, method=RANDOM, ray="127.0.0.1:1")


def members_of(mark):
    """Processes of the cluster with this mark that train as one; other clusters may run beside."""
    found = []
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it is gone, or another user's
            name = (place / "cmdline").read_bytes() if place.name.isdigit() else b""
            if b"_Member.work" in name and mark.encode() in (place / "environ").read_bytes():
                found.append(int(place.name))
    return found


def kill_one_member(mark, checkpoints, killed):
    """Once there is a checkpoint, kill one of the two workers that train."""
    for _ in range(2_000):
        if any(checkpoints.rglob("checkpoint.pt")) and len(members_of(mark)) == 2:  # both train
            killed.append(members_of(mark)[1])
            os.kill(killed[0], signal.SIGKILL)
            return
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_three_nodes_of_which_one_dies_give_the_numbers_of_one_process(log, monkeypatch, tmp_path):
    """First a worker dies that shares a training with another, then a node in the moments pass."""
    world, dataset = log
    monkeypatch.setattr(shards, "_SHARD_ROWS", 50)
    monkeypatch.setenv("BCRL_TEST_MARK", str(tmp_path))
    methods = {"random": RANDOM, "trained": TRAINED, "fqe": bcrl.FQE(steps=20, hidden=(8,))}
    ask = {"policies": {"target": world.target}, "discount": 0.9, "show": lambda news: None}
    long = {
        "long": bcrl.LSPE(bcrl.BellmanComplete(dim=8, steps=400, evaluations=40, batch_size=64), repeats=1)
    }
    alone = bcrl.compare(dataset, **ask, methods=methods | long).estimates["target"]
    with ray_nodes(3) as (nodes_of, nodes):
        worker = []
        killer = threading.Thread(target=kill_one_member, args=(str(tmp_path), tmp_path / "kept", worker))
        killer.start()
        there = {"ray": nodes_of.address, "workers_per_training": 2}
        kept = {"folder": tmp_path / "kept", "save_every": 0.0}
        together = bcrl.compare(dataset, **ask, **there, **kept, methods=long).estimates["target"]["long"]
        killer.join()
        killed = []

        def kill_in_the_moments_pass(news):
            if news["stage"].startswith("LSPE") and not killed:
                killed.append(news["step"])
                nodes_of.remove_node(nodes[2], allow_graceful=False)

        ask["show"] = kill_in_the_moments_pass
        found = bcrl.compare(dataset, **ask, methods=methods, ray=nodes_of.address).estimates["target"]
    assert worker and killed and killed[0] < len(dataset)
    assert together.value == pytest.approx(alone["long"].value, rel=1e-5)
    assert len(together.curves["train/value"]) == len(alone["long"].curves["train/value"])
    close(found["random"], alone["random"], 1e-9)
    close(
        found["trained"], alone["trained"], 1e-7
    )  # float32 features: a batch of other rows rounds otherwise
    assert found["fqe"].value == alone["fqe"].value
    np.testing.assert_array_equal(found["fqe"].per_start, alone["fqe"].per_start)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_who_hears_of_a_death_before_ray_does_begins_again(tmp_path):
    """Of two workers the first fails at once, as gloo does, and the second dies a second later; once."""

    def work(place):  # inside, so that it travels whole
        dist.barrier()
        first = Path(place) / "first"
        if first.exists():
            return dist.get_world_size()
        if dist.get_rank() == 0:
            raise RuntimeError("Connection closed by peer")
        time.sleep(1.0)
        first.touch()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    with (
        ray_nodes(2) as (nodes, _),
        cluster(nodes.address, _versions, per_training=2) as crew,
    ):
        assert crew.together(work, str(tmp_path)) == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_node_with_other_versions_is_refused_in_one_line(log, tmp_path):
    world, dataset = log
    other = tmp_path / "other" / "torch-0.0.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 0.0.1\n")
    path = os.pathsep.join([str(other.parent), os.environ.get("PYTHONPATH", "")])
    with (
        ray_nodes(2, env_vars={"PYTHONPATH": path}) as (nodes_of, _),
        pytest.raises(BadInput, match=r"has torch 0.0.1 \(here") as refused,
    ):
        bcrl.evaluate(dataset, world.target, discount=0.9, method=RANDOM, ray=nodes_of.address)
    assert "\n" not in str(refused.value) and _versions()["torch"] in str(refused.value)
