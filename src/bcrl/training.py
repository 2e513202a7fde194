"""The one training loop: a generator of metrics that checkpoints, resumes to the bit and never decides
anything.

    for metrics in train(learner, steps=10_000, run=run):
        ...                                         # the caller logs, shows, stops

A learner is an object with `step() -> {name: number}`, `state()` and `restore(state)`. Its state holds
everything that the next step depends on (weights, optimiser, generators), so that a killed run continues as
if it had never stopped.
"""

import importlib.util
import io
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from bcrl.errors import BadInput
from bcrl.sealed import Damaged, read_sealed, set_aside, write_sealed

Metrics = dict[str, float]
Precision = Literal["auto", "float32", "bfloat16"]


def silent(_: Mapping[str, Any]) -> None:
    """Show nothing."""


class Crew(Protocol):
    """Other processes that share the work (bcrl.scale). What they run must not depend on which one runs it.

    Attributes:
        per_training: how many of them share one training of a representation.
    """

    per_training: int

    def each(
        self,
        work: Callable[..., Any],
        items: Iterable[Any],
        shared: Sequence[Any] = (),
        advance: Callable[[int], None] = lambda _: None,
    ) -> list[Any]:
        """`work(item, *shared)` of every item, in order; `advance` is told how many more are done."""
        ...

    def sums(
        self,
        work: Callable[..., Any],
        groups: Sequence[Sequence[Any]],
        add: Callable[[Any, Any], Any],
        shared: Sequence[Any] = (),
        advance: Callable[[int], None] = lambda _: None,
    ) -> list[Any]:
        """For every group of items the sum of `work(item, *shared)`, added up as a tree."""
        ...

    def together(self, work: Callable[..., Any], item: Any, shared: Sequence[Any] = ()) -> Any:  # noqa: ANN401
        """`work(item, *shared)`, done by `per_training` processes as one (torch.distributed)."""
        ...


@dataclass(frozen=True)
class Run:
    """Where a computation keeps its checkpoints and how it shows progress.

    Attributes:
        folder: checkpoints live here; None keeps nothing on disk.
        key: names the computation; a checkpoint with another key is not taken for this one's.
        show: called with the stage, step, steps, rate (samples a second), seconds left and loss terms.
        save_every: seconds between checkpoints.
        device: "auto" takes a GPU where there is one.
        precision: of BellmanComplete's networks; "auto" takes bfloat16 on GPUs that have it, else float32.
        compile: torch.compile BellmanComplete's head, where a compiler is found.
        tensorboard: folder for TensorBoard event files; None writes none.
        crew: other processes that share the work; None does it all here.
    """

    folder: Path | None = None
    key: str = ""
    show: Callable[[Mapping[str, Any]], None] = silent
    save_every: float = 30.0
    device: str = "auto"
    precision: Precision = "auto"
    compile: bool = False
    tensorboard: Path | None = None
    crew: Crew | None = None

    def sent(self) -> "Run":
        """The same run for a task of another process: it shows nothing and sends nothing on."""
        return replace(self, show=silent, crew=None)

    def within(self, name: str) -> "Run":
        """The same run one folder deeper: every learner of a method has a room of its own."""
        return replace(
            self,
            folder=None if self.folder is None else self.folder / name,
            key=f"{self.key}/{name}",
            tensorboard=None if self.tensorboard is None else self.tensorboard / name,
        )

    def titled(self, title: str) -> "Run":
        """The same run with a title behind the name of every stage that it shows."""
        return replace(
            self, show=lambda news: self.show({**news, "stage": f"{news.get('stage', '')}, {title}"})
        )

    @property
    def torch_device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            return torch.zeros(0, device=self.device).device
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            why = str(error).splitlines()[0]
            raise BadInput(f"device={self.device!r} cannot be used: {why} Try 'cpu' or 'auto'.") from None


class Learner(Protocol):
    """What the loop trains."""

    batch_size: int

    def step(self) -> Mapping[str, float | torch.Tensor]: ...

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any]) -> None: ...


def train(
    learner: Learner,
    *,
    steps: int,
    run: Run,
    stage: str,
    every: int = 50,
    measure: Callable[[], Mapping[str, float]] | None = None,
) -> Iterator[Metrics]:
    """Take `steps` updates, yielding averaged metrics every `every` of them and after the last.

    `measure` adds numbers that are taken then and there, not averaged; it may change the learner, which is
    saved after it.

    Metrics that were yielded before a kill are yielded again on resume, so the caller's curves come out
    whole. A caller that stops early closes the generator; the checkpoint of a finished or stopped run stays
    for the next call.
    """
    path = None if run.folder is None else run.folder / "checkpoint.pt"
    history: list[Metrics] = []
    done = 0
    saved = None if path is None else read_checkpoint(path, run.key)
    if saved is not None:
        learner.restore(saved["learner"])
        done, history = int(saved["step"]), saved["history"]
        yield from [dict(metrics) for metrics in history]
    writer = _writer(run.tensorboard)
    sums: dict[str, float | torch.Tensor] = {}
    count, clock, saved_at, began = 0, time.monotonic(), time.monotonic(), done
    while done < steps:
        for name, value in learner.step().items():
            sums[name] = sums.get(name, 0.0) + (value.detach() if isinstance(value, torch.Tensor) else value)
        done, count = done + 1, count + 1
        if done % every and done != steps:
            continue
        metrics = {"step": float(done)} | {name: float(value) / count for name, value in sums.items()}
        metrics |= {} if measure is None else measure()
        sums, count = {}, 0
        history.append(metrics)
        pace = (done - began) / max(time.monotonic() - clock, 1e-9)
        run.show(
            {"stage": stage, "steps": steps, "rate": pace * learner.batch_size, "left": (steps - done) / pace}
            | metrics
        )
        if writer is not None:
            for name, value in metrics.items():
                writer.add_scalar(name, value, done)
        if (
            path is not None
            and first_of_all()
            and (done == steps or time.monotonic() - saved_at > run.save_every)
        ):
            state = {"key": run.key, "learner": learner.state(), "step": done, "history": history}
            write_checkpoint(path, state)
            saved_at = time.monotonic()
        yield dict(metrics)
    if writer is not None:
        writer.close()


def state_of(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The state of each part of a learner by name: modules, optimisers, schedules, generators."""
    return {
        name: part.get_state() if isinstance(part, torch.Generator) else part.state_dict()
        for name, part in parts.items()
    }


def restore_parts(parts: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Give each part the state that `state_of` took from it."""
    for name, part in parts.items():
        if isinstance(part, torch.Generator):
            part.set_state(state[name])
        else:
            part.load_state_dict(state[name])


class Pace:
    """Progress of work that is no training: how much is done, how fast, how long still."""

    def __init__(self, run: Run, stage: str, total: int) -> None:
        self.run, self.stage, self.total, self.done = run, stage, total, 0
        self.began = time.monotonic()

    def advance(self, amount: int) -> None:
        """Tell that so much more is done."""
        self.done += amount
        rate = self.done / max(time.monotonic() - self.began, 1e-9)
        left = (self.total - self.done) / max(rate, 1e-9)
        self.run.show(
            {"stage": self.stage, "step": self.done, "steps": self.total, "rate": rate, "left": left}
        )


def write_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Tensors and numbers with their hash, whole or not at all."""
    content = io.BytesIO()
    torch.save(dict(state), content)
    write_sealed(path, content.getvalue())


def read_checkpoint(path: Path, key: str | None = None) -> dict[str, Any] | None:
    """What `write_checkpoint` wrote; None where there is nothing, or nothing that can be used.

    Args:
        path: the checkpoint; one that is damaged, or of another computation, is set aside and told of.
        key: of the computation that it must be of; None takes any.
    """
    if not os.path.lexists(path):
        return None
    try:
        state: dict[str, Any] = torch.load(
            io.BytesIO(read_sealed(path)), weights_only=True, map_location="cpu"
        )
        if key is not None and state.get("key") != key:
            raise Damaged(f"{path} is a checkpoint of another computation.")
    except Damaged as error:
        set_aside(path, str(error))
        return None
    return state


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """Mixed precision for a network's forward pass.

    "auto" takes bfloat16 on GPUs that have it; on CPUs it measured slower than float32 wherever there is no
    AMX.
    """
    able = device.type == "cuda" and torch.cuda.is_bf16_supported()
    wanted = precision == "bfloat16" or (precision == "auto" and able)
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=wanted)


def compiler_found(device: torch.device) -> bool:
    """Whether torch.compile has what it needs: triton on a GPU, a C++ compiler on a CPU."""
    if device.type == "cuda":
        return importlib.util.find_spec("triton") is not None
    return any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "clang++"))


def generators(seed: int) -> tuple[np.random.Generator, torch.Generator]:
    """A numpy and a torch generator from one seed; the library never touches the global ones."""
    return np.random.default_rng(seed), torch.Generator().manual_seed(
        int(np.random.SeedSequence(seed).generate_state(1)[0])
    )


def _writer(folder: Path | None) -> Any:  # noqa: ANN401 - tensorboard is an extra
    if folder is None:
        return None
    if importlib.util.find_spec("tensorboard") is None:
        raise BadInput("tensorboard= needs the package of that name: pip install 'bcrl[tensorboard]'.")
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder))


def first_of_all() -> bool:
    """Whether this process writes what several write alike: checkpoints."""
    return not dist.is_initialized() or dist.get_rank() == 0


def average_gradients(module: nn.Module) -> None:
    """The mean of all processes' gradients; nothing to do with one process."""
    if not dist.is_initialized():
        return
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    pieces = torch.split(flat / dist.get_world_size(), [gradient.numel() for gradient in gradients])
    for gradient, piece in zip(gradients, pieces, strict=True):
        gradient.copy_(piece.view_as(gradient))
