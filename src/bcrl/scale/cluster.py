"""A Ray cluster as a `Crew`: tasks, sums of tasks as a tree, and trainings on several workers at once.

Ray does what is hard: it runs a task again where its worker or its node died, makes lost results again, and
keeps what several tasks read once a machine. Nothing here schedules or sends anything of its own. A task
reads memory-mapped data through the same path, so the folder has to lie on storage that all machines see;
arrays that lie in memory are sent.
"""

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from bcrl.errors import BadInput
from bcrl.training import Crew

RETRIES = 3  # times that the machine under a task may die
_PLACED, _KNOWN = 60.0, 60.0  # seconds until a worker has begun, and until a death is known
_WAITING = 2  # tasks sent for each processor: one runs, one waits
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@contextmanager
def cluster(
    address: str, versions: Callable[[], Mapping[str, str]], *, per_training: int = 1
) -> Iterator["Cluster"]:
    """The cluster at an address ("auto" finds the one of this machine), left again at the end.

    Args:
        address: as `ray.init` takes it.
        versions: of the packages that have to be the same everywhere.
        per_training: workers that share one training of a representation.
    """
    try:
        import ray
    except ImportError as error:
        raise BadInput("ray= needs the package of that name: pip install 'bcrl[ray]'.") from error
    if isinstance(per_training, bool) or not isinstance(per_training, int) or per_training < 1:
        raise BadInput(f"workers_per_training is {per_training!r}; expected a whole number from 1.")
    own = not ray.is_initialized()
    if own:
        try:
            _require_answer(address)
            ray.init(address=address, log_to_driver=False, runtime_env={"env_vars": _ONE_THREAD})
        except (OSError, RuntimeError, ValueError) as error:
            why = " ".join(str(error).split())[:300]
            raise BadInput(
                f"No Ray cluster answers at {address!r} ({why}). Start one: ray start --head."
            ) from None
    try:
        _require_same(versions)
        yield Cluster(per_training)
    finally:
        if own:
            ray.shutdown()


def _require_answer(address: str) -> None:
    """HOST:PORT has to take a connection: Ray would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=5.0).close()


class Cluster(Crew):
    """A connected cluster."""

    def __init__(self, per_training: int) -> None:
        self.per_training = per_training

    def each(
        self,
        work: Callable[..., Any],
        items: Iterable[Any],
        shared: Sequence[Any] = (),
        advance: Callable[[int], None] = lambda _: None,
    ) -> list[Any]:
        import ray

        places = [ray.put(one) for one in shared]
        with _told():
            refs = self._sent(work, items, places, advance)
            return list(ray.get(refs))

    def sums(
        self,
        work: Callable[..., Any],
        groups: Sequence[Sequence[Any]],
        add: Callable[[Any, Any], Any],
        shared: Sequence[Any] = (),
        advance: Callable[[int], None] = lambda _: None,
    ) -> list[Any]:
        import ray

        places = [ray.put(one) for one in shared]
        adding = ray.remote(num_cpus=1, max_retries=RETRIES)(add)
        with _told():
            leaves = iter(self._sent(work, [item for group in groups for item in group], places, advance))
            totals = []
            for group in groups:
                level = [next(leaves) for _ in group]
                while len(level) > 1:
                    pairs = [adding.remote(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
                    level = pairs + level[len(level) - len(level) % 2 :]
                totals.append(level[0])
            return list(ray.get(totals))

    def _sent(
        self,
        work: Callable[..., Any],
        items: Iterable[Any],
        places: Sequence[Any],
        advance: Callable[[int], None],
    ) -> list[Any]:
        """Where the results of all items are, once they are made; never many more under way than can run."""
        import ray

        task = ray.remote(num_cpus=1, max_retries=RETRIES)(_alone)
        room = max(2, _WAITING * int(ray.cluster_resources().get("CPU", 1)))
        refs: list[Any] = []
        running: list[Any] = []
        for item in items:
            refs.append(task.remote(work, item, *places))
            running.append(refs[-1])
            while len(running) >= room:
                done, running = ray.wait(running, num_returns=1)
                advance(len(done))
        while running:
            done, running = ray.wait(running, num_returns=1)
            ray.get(done)  # an error ends the waiting
            advance(len(done))
        return refs

    def together(self, work: Callable[..., Any], item: Any, shared: Sequence[Any] = ()) -> Any:  # noqa: ANN401
        """The first worker's result of work that `per_training` workers do as one, by torch.distributed.

        Where one of them dies the others are stopped and all begin again, with as many as the cluster then
        has room for: from the last checkpoint, where the work keeps one.
        """
        import ray

        places = [ray.put(one) for one in shared]
        member = ray.remote(num_cpus=1, max_restarts=0)(_Member)
        for tries_left in range(RETRIES, -1, -1):
            world = max(1, min(self.per_training, int(ray.cluster_resources().get("CPU", 1))))
            members = [member.remote() for _ in range(world)]
            try:
                with _told():
                    present = _placed(members)
                    results = [
                        one.work.remote(rank, len(present), present[0][1], work, item, *places)
                        for rank, (one, _) in enumerate(present)
                    ]
                    waiting = list(results)
                    while waiting:
                        done, waiting = ray.wait(waiting, num_returns=1)
                        _require_alive(done[0], waiting)
                    return ray.get(results[0])
            except Lost:
                if not tries_left:
                    raise
            finally:
                for one in members:
                    ray.kill(one)
        raise AssertionError("unreachable")


def _placed(members: Sequence[Any]) -> list[tuple[Any, str]]:
    """The workers that have begun, and an address of each: one meant for a dead machine may never begin."""
    import ray

    asked = [one.place.remote() for one in members]
    ready, _ = ray.wait(asked, num_returns=len(asked), timeout=_PLACED)
    ready = ready or ray.wait(asked, num_returns=1)[0]
    return [(one, ray.get(ref)) for one, ref in zip(members, asked, strict=True) if ref in ready]


def _require_alive(done: Any, others: Sequence[Any]) -> None:  # noqa: ANN401 - Ray has no types
    """Raise what a worker raised: `Lost` where another died, of which it may hear before Ray does."""
    import ray

    try:
        ray.get(done)  # a death is known at once, while the others still wait for the dead
    except ray.exceptions.RayTaskError:
        ended = ray.wait(list(others), num_returns=len(others), timeout=_KNOWN)[0] if others else []
        for ref in ended:
            try:
                ray.get(ref)
            except ray.exceptions.RayActorError as error:
                raise Lost(_words(error)) from error
            except Exception:  # noqa: BLE001 - it tells of the same death, or of the same fault
                continue
        raise


class Lost(BadInput):
    """Machines died more often than work is begun again."""


class _Member:
    """One of several workers that train as one."""

    def place(self) -> str:
        import ray

        with socket.create_server(("", 0)) as free:
            return f"tcp://{ray.util.get_node_ip_address()}:{free.getsockname()[1]}"

    def work(self, rank: int, world: int, place: str, work: Callable[..., Any], *given: Any) -> Any:  # noqa: ANN401
        torch.set_num_threads(1)
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, init_method=place, rank=rank, world_size=world)
        try:
            result = work(*given)
            return result if rank == 0 else None
        finally:
            dist.destroy_process_group()


def _alone(work: Callable[..., Any], item: Any, *shared: Any) -> Any:  # noqa: ANN401
    torch.set_num_threads(1)  # BLAS reads the environment
    return work(item, *shared)


@contextmanager
def _told() -> Iterator[None]:
    """A task's own error as it was raised there; a cluster's in one line."""
    import ray

    try:
        yield
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ray.exceptions.RayError):
            raise Lost(_words(error.cause)) from error
        raise error.cause from error
    except ray.exceptions.RayError as error:
        raise Lost(_words(error)) from error


def _words(error: Exception) -> str:
    return f"The Ray cluster lost work {RETRIES + 1} times ({' '.join(str(error).split())[:300]})."


def _require_same(versions: Callable[[], Mapping[str, str]]) -> None:
    """Refuse nodes whose packages differ from this machine's: their numbers would."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    own = versions()
    probe = ray.remote(num_cpus=0, max_retries=RETRIES)(versions)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    asked = [
        probe.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote()
        for node in nodes
    ]
    with _told():
        answers = ray.get(asked)
    for node, theirs in zip(nodes, answers, strict=True):
        differ = [
            f"{name} {theirs.get(name)} (here {own[name]})" for name in own if theirs.get(name) != own[name]
        ]
        if differ:
            raise BadInput(
                f"The Ray node {node['NodeManagerAddress']} has {', '.join(differ)}: numbers would differ. "
                "Install the same versions everywhere (constraints.txt)."
            )
