"""The benchmark world: DeepMind Control tasks, policies of known strength, datasets, ground truth."""

import os

os.environ.setdefault("MUJOCO_GL", "egl")  # dm_control reads it once, at its first import
