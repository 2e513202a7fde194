"""Policies as people bring them: functions, torch modules, files. `load_policy` is the way in."""

from bcrl.policies.load import load_policy

__all__ = ["load_policy"]
