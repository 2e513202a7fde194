"""A harness, for training only: a force that lifts the humanoid's torso and a torque that rights it, less and
less.

At level 1 the humanoid hangs like a puppet with its feet on the floor and is paid for standing. An episode
that earns enough lowers the level and another raises it by less, so that it stays where the humanoid can just
do without the rest (an outer wrench as a curriculum: Yu, Turk and Liu 2018). Evaluation never has one, and
the state does not show it.
"""

import numpy as np

from bcrl.errors import BadInput
from bcrl_bench.tasks import ControlTask

LIFT = 1.5  # body weights, where the head is SLACK metres or more below REACH
REACH, SLACK = 1.5, 0.3
STRONGEST = 1.6  # body weights
RIGHTING, TURNING, TORQUE = (
    80.0,
    4.0,
    80.0,
)  # N m for a torso that lies; N m per rad/s against its turning; N m at most
DRAG = np.array([2.0, 2.0, 5.0])  # of the whole body's momentum, per second
GRAVITY = 9.81
ENOUGH = 0.3  # mean reward of an episode, as a share of the largest
LOWER, RAISE = 0.01, 0.006
LOOSEST = 0.7  # share of the level that an episode has at least, so that the actor never counts on one


def require_humanoid(task: str) -> None:
    """The harness is made for one body."""
    if not task.startswith("humanoid"):
        raise BadInput(f"the harness fits the humanoid; got {task}. Leave harness out.")


def pull(task: ControlTask, level: float) -> None:
    """Set the outer force for the next step."""
    physics = task.control.physics
    torso = physics.model.name2id("torso", "body")
    mass = float(physics.model.body_mass.sum())
    turn = physics.data.xmat[torso].reshape(3, 3)
    force = -DRAG * mass * physics.center_of_mass_velocity()
    low = np.clip((REACH - physics.head_height()) / SLACK, 0.0, 1.0)
    weight = mass * GRAVITY
    force[2] = np.clip(force[2] + LIFT * weight * low, -weight, STRONGEST * weight)
    torque = RIGHTING * np.cross(turn[:, 2], [0.0, 0.0, 1.0]) - TURNING * turn @ physics.data.qvel[3:6]
    physics.data.xfrc_applied[torso] = level * np.concatenate([force, np.clip(torque, -TORQUE, TORQUE)])


def let_go(task: ControlTask) -> None:
    """No outer force."""
    task.control.physics.data.xfrc_applied[:] = 0.0


def moved_level(level: float, reward: float, largest: float) -> float:
    """The level after an episode of this mean reward."""
    return float(np.clip(level + (-LOWER if reward > ENOUGH * largest else RAISE), 0.0, 1.0))
