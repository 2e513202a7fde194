"""A dataset's kind as JSON: keys, shapes, types, actions.

It lets a saved value function read observations again.
"""

from typing import Any

import numpy as np

from bcrl.data.dataset import Dataset


def template_spec(dataset: Dataset) -> dict[str, Any]:
    """What `restore_template` needs, JSON-able."""
    return {
        "observations": {
            key: {"shape": list(value.shape[1:]), "dtype": str(value.dtype)}
            for key, value in dataset.observations.items()
        },
        "actions": {"shape": list(dataset.actions.shape[1:]), "dtype": str(dataset.actions.dtype)},
        "stack": dataset.stack,
        "single": dataset.single,
        "num_actions": dataset.num_actions,
    }


def restore_template(spec: dict[str, Any]) -> Dataset:
    """The dataset of no rows that `template_spec` described."""
    return Dataset(
        observations={
            key: np.zeros((0, *part["shape"]), dtype=part["dtype"])
            for key, part in spec["observations"].items()
        },
        actions=np.zeros((0, *spec["actions"]["shape"]), dtype=spec["actions"]["dtype"]),
        rewards=np.zeros(0),
        terminated=np.zeros(0, dtype=bool),
        truncated=np.zeros(0, dtype=bool),
        offsets=np.zeros(1, dtype=np.int64),
        stack=spec["stack"],
        single=spec["single"],
        num_actions=spec["num_actions"],
    )
