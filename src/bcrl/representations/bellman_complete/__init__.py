"""The paper's representation: features that are linear Bellman complete for the target policies and well covered by the data.

recipe.py   settings, presets, fit         objective.py  the terms of the loss
learner.py  one training step              inner.py      M and rho
moments.py  what the loss reads of a batch watch.py      held-out figures during training
"""

from bcrl.representations.bellman_complete.recipe import BellmanComplete

__all__ = ["BellmanComplete"]
