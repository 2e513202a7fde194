"""Data read wrongly, each in one way; an estimator's answer must follow."""

import dataclasses

import numpy as np


def swapped(dataset):
    """s and s' exchanged: each episode's observations in reverse order."""
    bounds = zip(dataset.start_rows, dataset.start_rows + dataset.lengths + 1, strict=True)
    order = np.concatenate([np.arange(a, b)[::-1] for a, b in bounds])
    return dataclasses.replace(dataset, observations={k: v[order] for k, v in dataset.observations.items()})


def unmasked(dataset):
    return dataclasses.replace(dataset, terminated=np.zeros_like(dataset.terminated))
