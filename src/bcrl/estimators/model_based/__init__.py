"""Model-based evaluation: learn how the world moves, then let the policy act in it.

method.py     settings and the method, top to bottom        parts.py     settings of the two world models
dreamer.py    the recurrent model: losses, simulator        one_step.py  the one-step model of vectors
rssm.py       its recurrent state                           learner.py   one update of either
images.py     its convolutions                              scales.py    units of vectors, actions, rewards
windows.py    the stretches of episodes it learns from      actors.py    who acts in the model
held_out.py   predictions of episodes it never saw          imagine.py   rollouts, and V(s) from them
audit.py      where the model or the policy leaves the log
"""

from bcrl.estimators.model_based.imagine import restore
from bcrl.estimators.model_based.method import ModelBased
from bcrl.estimators.model_based.parts import Dreamer, OneStep

__all__ = ["Dreamer", "ModelBased", "OneStep", "restore"]
