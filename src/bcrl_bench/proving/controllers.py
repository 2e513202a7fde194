"""The policies of stepped worlds: learned actors from files, and controllers written by hand."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl_bench.policies.actor import NumpyActor
from bcrl_bench.proving.family import Family
from bcrl_bench.proving.stepped import Simulator, SteppedWorld

Array = NDArray[Any]
Ladder = dict[str, "Controller"]
WEIGHTS = Path(__file__).parent / "weights"


@dataclass(frozen=True, eq=False)
class Controller:
    """One action for each observation (n, k), by a rule."""

    rule: Callable[[Array], Array]
    reads: None = None

    def act(self, observations: Array) -> Array:
        """Actions (n, A) in [-1, 1], or their numbers (n,) where they are discrete."""
        return self.rule(np.asarray(observations))


def learned(name: str, level: str) -> Controller:
    """A shipped actor of the ground: `learned("ant", "good")`."""
    return actor_at(WEIGHTS / name / f"{level}.safetensors")


def actor_at(path: Path) -> Controller:
    """The deterministic actor in a file."""
    return Controller(NumpyActor.load(path).act)


def rungs(poor: Controller, medium: Controller, good: Controller, other: Controller) -> Ladder:
    """A ladder by hand."""
    return {"poor": poor, "medium": medium, "good": good, "other": other}


def ladder_of(name: str, other: Controller | None = None) -> Ladder:
    """Poor, medium and good actors of one run; "other" is the folder's fourth where none is given."""
    poor, medium, good = (learned(name, level) for level in ("poor", "medium", "good"))
    return rungs(poor, medium, good, learned(name, "other") if other is None else other)


def column(values: Array) -> Array:
    """(n,) numbers as actions (n, 1) kept within [-1, 1]."""
    return np.clip(values, -1.0, 1.0)[:, None]


def arm_torques(angles: Array, lengths: tuple[float, float], force: Array) -> Array:
    """Torques (n, 2) of a planar two-link arm by which a force (n, 2) pulls at its tip: Jacobian^T force."""
    first, both = angles[:, 0], angles[:, 0] + angles[:, 1]
    outer = lengths[1] * np.stack([-np.sin(both), np.cos(both)], axis=1)
    inner = lengths[0] * np.stack([-np.sin(first), np.cos(first)], axis=1)
    return np.stack([((inner + outer) * force).sum(axis=1), (outer * force).sum(axis=1)], axis=1)


def stepped_files(wrapper: str, name: str = "", *more: str) -> tuple[str, ...]:
    """What a family of a stepped world is made of beside its own file, as `Family.files` wants it.

    Args:
        wrapper: gym_worlds or control_worlds.
        name: of its folder of learned actors, if it has one.
        more: actors beside poor, medium and good.
    """
    levels = ("poor", "medium", "good", *more) if name else ()
    shared = ("../stepped.py", f"../{wrapper}.py", "../controllers.py")
    return (*shared, *(f"../weights/{name}/{level}.safetensors" for level in levels))


def stepped_family(
    name: str,
    copies: Callable[[], Simulator],
    ladder: Callable[[], Ladder],
    files: tuple[str, ...],
    *,
    num_actions: int | None = None,
    **numbers: Any,  # noqa: ANN401 - the fields of `Family`
) -> Family:
    """A family of one simulator, always the same world.

    Args:
        name: of the family.
        copies: makes copies of the simulator.
        ladder: its policies.
        files: what it is made of, by `stepped_files`.
        num_actions: of a discrete simulator.
        numbers: further fields of `Family`.
    """

    def make(seed: int) -> SteppedWorld:
        del seed
        return SteppedWorld(copies, ladder(), num_actions)

    return Family(name=name, make=make, files=files, worlds=1, **numbers)
