"""The actors that come with the package: weights/<task>/<level>.safetensors, each with what it earned and on
which seeds.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import safe_open

from bcrl.errors import BadInput, did_you_mean
from bcrl.policies.load import load_policy
from bcrl_bench.policies.actor import NumpyActor, measured
from bcrl_bench.rollouts import Behaviour, undiscounted_returns
from bcrl_bench.tasks import ControlTask

WEIGHTS = Path(__file__).parent / "weights"
DETERMINISTIC = 0.0
SEEDS = list(range(50))


def shipped_levels(task: str) -> list[str]:
    """Levels shipped for a task, strongest first: `100`, `075`, ... (per cent of the strongest actor's
    return).
    """
    return sorted((path.stem for path in (WEIGHTS / task).glob("*.safetensors")), reverse=True)


def shipped_path(task: str, level: str) -> Path:
    """Where one shipped actor lies."""
    levels = shipped_levels(task)
    if level not in levels:
        tasks = {path.parent.name for path in WEIGHTS.glob("*/*.safetensors")}
        hint = f"{task} has the levels {', '.join(levels)}." if levels else did_you_mean(task, tasks)
        raise BadInput(f"no actor is shipped for {task} at level {level!r}. {hint}")
    return WEIGHTS / task / f"{level}.safetensors"


def shipped_actor(task: str, level: str) -> NumpyActor:
    """One shipped actor: `shipped_actor("cheetah-run", "025")`."""
    return NumpyActor.load(shipped_path(task, level))


def shipped_policy(task: str, level: str) -> Any:  # noqa: ANN401
    """A state actor by its level (`100`), or a distilled pixel actor by folder and level (`pixels64/100`)."""
    if "/" not in level:
        return shipped_actor(task, level)
    if level not in shipped_names(task):
        known = ", ".join(shipped_names(task)) or "none"
        raise BadInput(f"no actor is shipped for {task} at level {level!r}; there are: {known}.")
    return load_policy(WEIGHTS / task / f"{level}.safetensors")


def remeasure(actor: NumpyActor, task: str, seeds: list[int]) -> NumpyActor:
    """The actor with freshly measured returns in its metadata: deterministic action, one episode a seed."""
    returns = undiscounted_returns(
        ControlTask(task, pixels=None), Behaviour(actor, noise=DETERMINISTIC), seeds
    )
    step = actor.metadata.get("step", actor.metadata.get("agent_steps", ""))
    return replace(actor, metadata={"task": task, "reads": "state", "step": step, **measured(returns, seeds)})


def shipped_names(task: str) -> list[str]:
    """Everything that `shipped_policy` takes for a task: levels, then pixel actors by folder and level."""
    paths = (WEIGHTS / task).glob("*/*.safetensors")
    pixels = sorted((f"{path.parent.name}/{path.stem}" for path in paths), reverse=True)
    return [*shipped_levels(task), *pixels]


def shipped_record(task: str, name: str) -> dict[str, str]:
    """What is written in an actor's file: return_mean, return_sd, episodes, seeds, returns, ..."""
    with safe_open(WEIGHTS / task / f"{name}.safetensors", framework="numpy") as file:
        return dict(file.metadata())


def shipped_table() -> str:
    """Every shipped actor and what it earned, as a Markdown table."""
    lines = [
        "| task | level | return | sd | standard error | episodes | trained for (agent steps) |",
        "|---|---|---|---|---|---|---|",
    ]
    for folder in sorted(path for path in WEIGHTS.iterdir() if path.is_dir()):
        for name in shipped_names(folder.name):
            about = shipped_record(folder.name, name)
            mean, sd, count = float(about["return_mean"]), float(about["return_sd"]), int(about["episodes"])
            figures = [f"{mean:.1f}", f"{sd:.1f}", f"{sd / count**0.5:.1f}", str(count), about["step"]]
            lines.append(f"| {' | '.join([folder.name, name, *figures])} |")
    return "\n".join(lines)


def ship(source: Path, task: str, level: str, seeds: list[int] = SEEDS) -> NumpyActor:
    """Measure an actor of a training trail and put it among the shipped ones."""
    actor = remeasure(NumpyActor.load(source), task, seeds)
    actor.save(WEIGHTS / task / f"{level}.safetensors")
    return actor
