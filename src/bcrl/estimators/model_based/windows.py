"""Stretches of episodes, which the recurrent model learns from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bcrl.data.dataset import Dataset
from bcrl.policies.policy import TargetActions


@dataclass(frozen=True, eq=False)
class Windows:
    """B stretches of L observations, each of one episode.

    Attributes:
        observations: by key, (B * L, ...), window by window.
        actions: that led to each observation, (B, L, A); 0 at the first.
        rewards: paid on arrival, (B, L); 0 at the first.
        goes_on: 0 where the world ended on arrival, (B, L).
        valid: 0 after an episode's end, (B, L).
        chosen: each target policy's mean action (probabilities) at each observation, (B * L, policies, A).
    """

    observations: Mapping[str, Tensor]
    actions: Tensor
    rewards: Tensor
    goes_on: Tensor
    valid: Tensor
    chosen: Tensor


def cut_windows(
    dataset: Dataset,
    first: NDArray[np.int64],
    episodes: NDArray[np.int64],
    length: int,
    means: NDArray[np.float32],
    keys: Sequence[str],
) -> Windows:
    """`length` observations of each of these episodes, from row `first` on; rows after its end are not valid.

    Args:
        dataset: pixels or vectors, actions, rewards.
        first: first observation row of each window, (B,).
        episodes: episode of each window, (B,).
        length: observations per window.
        means: mean target action of each policy at every row, (N + E, policies, A).
        keys: observation keys that the model sees or decodes.
    """
    last = dataset.offsets[episodes + 1] + episodes
    rows = first[:, None] + np.arange(length)
    valid = rows <= last[:, None]
    rows = np.minimum(rows, last[:, None])
    # The transition that led to row i of episode e is i - e - 1; windows begin without one.
    before = np.maximum(rows - episodes[:, None] - 1, 0)
    flat = rows.ravel()
    seen = dataset.observe(flat)
    observations = {key: torch.from_numpy(np.ascontiguousarray(seen[key])) for key in keys}
    return Windows(
        {key: value if value.dtype == torch.uint8 else value.float() for key, value in observations.items()},
        torch.from_numpy(dataset.action_matrix(dataset.actions[before.ravel()])).view(*rows.shape, -1),
        torch.from_numpy(dataset.rewards[before].astype(np.float32)),
        torch.from_numpy((~dataset.terminated[before]).astype(np.float32)),
        torch.from_numpy(valid.astype(np.float32)),
        torch.from_numpy(means[flat]),
    )


def mean_actions(dataset: Dataset, targets: Sequence[TargetActions]) -> NDArray[np.float32]:
    """Each policy's mean action (probabilities where discrete) at every row, (N + E, policies, A)."""
    rows = len(dataset) + dataset.num_episodes
    if not targets:
        return np.zeros((rows, 0, dataset.action_dim), dtype=np.float32)
    means = [np.einsum("nk,nka->na", target.weights, target.actions) for target in targets]
    return np.stack(means, axis=1).astype(np.float32)


def draw_windows(
    dataset: Dataset, episodes: NDArray[np.int64], count: int, length: int, generator: torch.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First rows and episodes of random windows: an episode by its number of observations, then a place."""
    sizes = dataset.lengths[episodes] + 1
    weights = torch.from_numpy(sizes.astype(np.float64))
    picked = episodes[torch.multinomial(weights, count, replacement=True, generator=generator).numpy()]
    places = np.maximum(dataset.lengths[picked] + 2 - length, 1)
    place = np.floor(torch.rand(count, generator=generator, dtype=torch.float64).numpy() * places)
    return dataset.offsets[picked] + picked + place.astype(np.int64), picked
