"""Assisted starts for training only: some episodes begin near success, so that a sparse or steep task is felt
early.

quadruped: tilted by about as much as it can right itself from (the frontier, which moves out by a degree when
an episode ended upright and back when not), now and then by any angle. humanoid: standing at its default
pose, jittered, until it falls. finger-turn: the spinner within `spread` radians of the target. Evaluation
always uses the task's own start states.
"""

import numpy as np
from dm_control.mujoco import Physics
from dm_control.suite import quadruped

from bcrl_bench.tasks import ControlTask, flatten

FIRST_FRONTIER, UPRIGHT = 40.0, 0.8
FALLEN = 0.6  # metres, of the humanoid's head


def assisted_reset(
    task: ControlTask, generator: np.random.Generator, frontier: float = FIRST_FRONTIER
) -> np.ndarray:
    """Reset the task near success and return the state; `frontier` is the quadruped's, in degrees."""
    task.reset(seed=int(generator.integers(2**31)))
    physics = task.control.physics
    domain = task.name.partition("-")[0]
    if domain == "quadruped":
        quadruped._find_non_contacting_height(physics, _tilted(generator, frontier))
        physics.data.qvel[3:6] = generator.normal(0, 1.0, 3)
    elif domain == "humanoid":
        _stand(physics, generator)
    elif domain == "finger":
        _near_target(physics, generator)
    physics.forward()
    return flatten(task.control.task.get_observation(physics))


def moved_frontier(task: ControlTask, frontier: float) -> float:
    """The frontier after an assisted episode, by how it ended."""
    if not task.name.startswith("quadruped"):
        return frontier
    upright = float(task.control.physics.torso_upright()) > UPRIGHT
    return float(np.clip(frontier + (1.0 if upright else -1.0), FIRST_FRONTIER, 180.0))


def fallen(task: ControlTask) -> bool:
    """Whether an assisted episode has nothing more to teach: the humanoid lies on the floor, where other
    episodes begin.
    """
    return task.name.startswith("humanoid") and float(task.control.physics.head_height()) < FALLEN


def _tilted(generator: np.random.Generator, frontier: float) -> np.ndarray:
    """Orientation (w, x, y, z) tilted about a random horizontal axis, near the frontier or (a fifth) by any
    angle.
    """
    near = np.clip(generator.normal(frontier, 15.0), 0.0, 180.0)
    tilt = generator.uniform(0.0, 180.0) if generator.random() < 0.2 else near
    half, axis = np.deg2rad(tilt) / 2, generator.uniform(-np.pi, np.pi)
    return np.array([np.cos(half), np.sin(half) * np.cos(axis), np.sin(half) * np.sin(axis), 0.0])


def _stand(physics: Physics, generator: np.random.Generator) -> None:
    with physics.reset_context():
        physics.data.qpos[7:] += generator.normal(0, 0.05, physics.model.nq - 7)
        physics.data.qvel[:] = generator.normal(0, 0.1, physics.model.nv)


def _near_target(physics: Physics, generator: np.random.Generator, spread: float = 1.0) -> None:
    angles = np.linspace(-np.pi, np.pi, 181)
    distances = []
    for angle in angles:
        physics.named.data.qpos["hinge"] = angle
        physics.forward()
        distances.append(physics.dist_to_target())
    physics.named.data.qpos["hinge"] = angles[int(np.argmin(distances))] + generator.uniform(-spread, spread)
    physics.after_reset()
