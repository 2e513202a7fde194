"""A few rows of every kind of data, for policies to look at."""

import numpy as np

from bcrl.data.dataset import Dataset


def dataset(num_actions=None, keys=None, n=12):
    """Two episodes of n / 2 transitions; one bare array of 3 numbers unless keys are given."""
    generator = np.random.default_rng(0)
    single = keys is None
    keys = {"observation": 3} if keys is None else keys
    observations = {key: generator.normal(size=(n + 2, size)) for key, size in keys.items()}
    actions = (
        generator.normal(size=(n, 2)) if num_actions is None else generator.integers(num_actions, size=n)
    )
    ends = np.isin(np.arange(n), [n // 2 - 1, n - 1])
    return Dataset(
        observations,
        actions,
        generator.normal(size=n),
        np.zeros(n, bool),
        ends,
        np.array([0, n // 2, n]),
        single=single,
        num_actions=num_actions,
    )
