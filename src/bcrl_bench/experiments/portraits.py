"""What figures show of a task itself: a frame, and what its policies earn; kept in tasks.json."""

from typing import Any

from safetensors import safe_open

from bcrl.comparison import picture
from bcrl_bench.experiments.profile import Profile
from bcrl_bench.experiments.records import Records
from bcrl_bench.policies.shipped import WEIGHTS
from bcrl_bench.tasks import ControlTask

SIDE = 128


def keep_portraits(profile: Profile, records: Records) -> None:
    """What is to be shown of each task of a profile, drawn once; a policy that was shipped since is added."""
    before = records.portraits()
    levels = {level for part in profile.parts for level in part.policies}
    levels |= {level for actors in profile.datasets.values() for level in actors}
    portraits = {}
    for task in profile.tasks:
        policies = {
            level: found for level in sorted(levels, reverse=True) if (found := earned(profile, task, level))
        }
        if policies:
            portraits[task] = {
                "policies": policies,
                "frame": before[task]["frame"] if task in before else frame(task),
            }
    records.keep_portraits(portraits)


def earned(profile: Profile, task: str, level: str) -> dict[str, Any] | None:
    """Measured return of a shipped actor, from its own file; None if there is none."""
    name = profile.actor(task, level)
    path = WEIGHTS / task / f"{name}.safetensors"
    if not path.is_file():
        return None
    with safe_open(path, framework="numpy") as file:
        about = file.metadata()
    return {
        "actor": name,
        "return": float(about["return_mean"]),
        "sd": float(about["return_sd"]),
        "episodes": int(about["episodes"]),
    }


def frame(task: str) -> str:
    """A start state of the task as base64 PNG text."""
    world = ControlTask(task, pixels=SIDE)
    observation, _ = world.reset(seed=0)
    world.close()
    return picture(observation["pixels"])
