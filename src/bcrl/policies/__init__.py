"""Policies as people bring them, made into one of three kinds; `load_policy` is the way in.

load.py                                   load_policy; objects with act, sample or probabilities
policy.py                                 what a policy is, what may be said of it; its actions on a dataset
kinds.py  distribution.py                 deterministic, stochastic, discrete; functions and torch modules
tables.py                                 scikit-learn estimators, functions of a DataFrame, lookup tables
files.py                                  which files may be opened at all, and which need trust
actor_file.py  actors.py                  .safetensors: our own actors
onnx_model.py  torch_export.py  graph.py  .onnx and .pt2: exported graphs
sb3_zip.py  sb3_model.py  normaliser.py   Stable-Baselines3: zips, live models, VecNormalize statistics
"""

from bcrl.policies.load import load_policy

__all__ = ["load_policy"]
