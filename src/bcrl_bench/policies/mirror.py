"""Left and right, for training only: what the humanoid does mirrored is what the mirrored humanoid would do.

Reflecting the world at the x-z plane turns a state and an action into others that the same physics joins,
with the same reward, so that every step the learner has seen is worth two. A rotation of angle t about an
axis a becomes one of angle t about -S a, where S reflects: a joint and its partner on the other side agree or
differ in sign by their axes.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bcrl.errors import BadInput
from bcrl_bench.tasks import ControlTask

REFLECTION = np.array([1.0, -1.0, 1.0])  # S
LAYOUT = {
    "joint_angles": 21,
    "head_height": 1,
    "extremities": 12,
    "torso_vertical": 3,
    "com_velocity": 3,
    "velocity": 27,
}


@dataclass(frozen=True, eq=False)
class Mirror:
    """Where each entry of a mirrored state (d,) or action (k,) comes from, and its sign."""

    state_from: Tensor
    state_sign: Tensor
    action_from: Tensor
    action_sign: Tensor

    @classmethod
    def of(cls, task: ControlTask) -> "Mirror":
        """The humanoid's mirror."""
        observation = task.control.task.get_observation(task.control.physics)
        shown = {name: np.size(value) for name, value in observation.items()}
        if shown != LAYOUT:
            raise BadInput(f"mirroring knows the humanoid's state; got {task.name}. Leave mirror out.")
        model = task.control.physics.model
        joints = [model.id2name(i, "joint") for i in range(1, model.njnt)]  # without the root
        motors = [model.id2name(i, "actuator") for i in range(model.nu)]
        axes = model.jnt_axis[1:]
        source = np.array([joints.index(_other_side(name)) for name in joints])
        sign = np.sign(np.sum(-REFLECTION * axes[source] * axes, axis=1))
        limbs = (
            np.arange(12).reshape(4, 3)[[2, 3, 0, 1]].ravel()
        )  # left hand, left foot, right hand, right foot
        parts = [  # in the order of LAYOUT; the root's turning is an axial vector
            (source, sign),
            (np.zeros(1, int), np.ones(1)),
            (limbs, np.tile(REFLECTION, 4)),
            (np.arange(3), REFLECTION),
            (np.arange(3), REFLECTION),
            (np.concatenate([np.arange(6), 6 + source]), np.concatenate([REFLECTION, -REFLECTION, sign])),
        ]
        begins = np.cumsum([0, *LAYOUT.values()])
        state_from = np.concatenate([begin + part for begin, (part, _) in zip(begins, parts, strict=False)])
        return cls(
            torch.from_numpy(state_from),
            torch.from_numpy(np.concatenate([part for _, part in parts])).float(),
            torch.tensor([motors.index(_other_side(name)) for name in motors]),
            torch.tensor([float(sign[joints.index(name)]) for name in motors]),
        )

    def states(self, states: Tensor) -> Tensor:
        """States (n, d) seen in the mirror."""
        return states[:, self.state_from] * self.state_sign

    def actions(self, actions: Tensor) -> Tensor:
        """Actions (n, k) seen in the mirror."""
        return actions[:, self.action_from] * self.action_sign


def _other_side(name: str) -> str:
    """right_knee for left_knee and the other way round."""
    side, _, rest = name.partition("_")
    return {"left": f"right_{rest}", "right": f"left_{rest}"}.get(side, name)
