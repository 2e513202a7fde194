"""The grid on a Ray cluster of two nodes, one of which is killed in the middle: nothing lost, nothing
doubled.
"""

import contextlib
import functools
import socket

import pytest

from bcrl_bench.experiments.cell import run_cell
from bcrl_bench.experiments.grid import run_grid, state_of
from bcrl_bench.experiments.profile import load_profile
from bcrl_bench.experiments.records import Records

PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")


def given_ports() -> dict[str, int]:
    """Free ports for a node's agents. With ports to choose, Ray gives up on a busy machine after 15 s (ray
    issue 65983).
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("", 0))) for _ in PORTS]
        return {name: own.getsockname()[1] for name, own in zip(PORTS, sockets, strict=True)}


def two_nodes():
    """A cluster and its second node. Ray's own start-up gives up after 15 s on a busy machine, so it may try
    again.
    """
    from ray.cluster_utils import Cluster

    for tries_left in (3, 2, 1, 0):
        cluster = Cluster()
        try:
            cluster.add_node(num_cpus=1, include_dashboard=False, **given_ports())
            return cluster, cluster.add_node(num_cpus=1, **given_ports())
        except Exception:  # Ray raises no narrower one
            cluster.shutdown()
            if not tries_left:
                raise
    raise AssertionError("unreachable")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_node_dies_in_the_middle_of_the_grid(tmp_path, tiny_profile):
    profile = load_profile(str(tiny_profile(["random", "mean"], seeds=4)))
    todo = profile.experiments()
    alone = functools.partial(run_cell, profile, cache=tmp_path / "cache")
    expected = alone(todo[0])["value"]
    cluster, doomed = two_nodes()
    written: list[str] = []

    def show(experiment, record, error) -> None:
        written.append(experiment.name)
        if len(written) == 3:  # both nodes have a cell in hand
            cluster.remove_node(doomed, allow_graceful=False)

    records = Records(tmp_path / "results")
    try:
        failures = run_grid(
            profile, records, todo, cache=tmp_path / "cache", ray_address=cluster.address, show=show
        )
    finally:
        cluster.shutdown()
    assert failures == 0
    assert sorted(written) == sorted(experiment.name for experiment in todo)
    assert len(written) == len(set(written)) == 16
    assert len(records.all()) == 16
    assert not state_of(profile, records, todo).todo
    assert records.finished()[todo[0]]["value"] == expected
