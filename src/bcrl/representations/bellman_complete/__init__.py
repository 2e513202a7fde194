"""The paper's representation: features that are linear Bellman complete for the target policies and well covered by the data.

recipe.py   settings, presets, fit          objective.py   the terms of the loss
fitting.py  one training                    inner.py       M and rho
learner.py  one step of it                  correction.py  the class G
seen.py     a batch through the networks    watch.py       held-out figures during training
moments.py  what the loss reads of it       steady.py      a second training where the first did not settle
"""

from bcrl.representations.bellman_complete.recipe import BellmanComplete

__all__ = ["BellmanComplete"]
