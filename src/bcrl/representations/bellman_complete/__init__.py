"""The paper's representation: features that are linear Bellman complete and well covered by the data.

recipe.py     settings, presets, fit                 inner.py        M and rho
fitting.py    one training, or a second one          correction.py   the class G
learner.py    Algorithm 3's step                     watch.py        held-out figures during training
objective.py  the paper's loss                       moments.py      what the loss sees of a batch
"""

from bcrl.representations.bellman_complete.recipe import (
    BellmanComplete,
    Bounds,
    Design,
    DoubleSampling,
    GradientSteps,
    Stopping,
)

__all__ = ["BellmanComplete", "Bounds", "Design", "DoubleSampling", "GradientSteps", "Stopping"]
