"""A Ray cluster of several nodes on this machine, each with processes of its own, to kill one."""

import contextlib
import os
import socket
from collections.abc import Iterator

PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")


def given_ports() -> dict[str, int]:
    """Free ports for a node's agents. With ports to choose, Ray gives up on a busy machine after 15 s (ray
    issue 65983).
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("", 0))) for _ in PORTS]
        return {name: own.getsockname()[1] for name, own in zip(PORTS, sockets, strict=True)}


def _started(several: list[dict]):
    """The nodes. Ray's own start-up gives up after 15 s on a busy machine, so it may try again."""
    from ray.cluster_utils import Cluster

    for tries_left in (3, 2, 1, 0):
        cluster = Cluster()
        try:
            first = cluster.add_node(include_dashboard=False, **several[0], **given_ports())
            return cluster, [first, *[cluster.add_node(**one, **given_ports()) for one in several[1:]]]
        except Exception:  # Ray raises no narrower one
            cluster.shutdown()
            if not tries_left:
                raise
    raise AssertionError("unreachable")


@contextlib.contextmanager
def ray_nodes(count: int, **last) -> Iterator[tuple]:
    """A cluster of so many nodes of one processor, and the nodes; `last` is told to the last one alone."""
    # At Ray's 15 its workers starve on a busy machine.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - Ray's own spelling
    small = {"num_cpus": 1, "object_store_memory": 100_000_000}
    cluster, nodes = _started([small] * (count - 1) + [small | last])
    try:
        yield cluster, nodes
    finally:
        cluster.shutdown()
