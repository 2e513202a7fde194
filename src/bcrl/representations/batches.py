"""Batches made of short runs of consecutive transitions, so that s' of one row is s of the next.

A run of l transitions has l + 1 observations. Encoding the runs' observations once gives both sides of every
transition: (l + 1) / l encodings a transition in place of 2. Runs are drawn again each epoch, cut at a random
phase, shuffled; the batch of a step depends on (seed, step) only, so that a resumed training sees what an
uninterrupted one would have seen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bcrl import salts
from bcrl.data.dataset import Dataset
from bcrl.networks import Encoder, shifted
from bcrl.policies.policy import FEW_ACTIONS, TargetActions


@dataclass(frozen=True, eq=False)
class Batch:
    """Tensors of n transitions.

    Attributes:
        observations: of the m rows that the batch needs, by key; None where z is already known.
        z: encodings of those rows where the encoder has nothing to learn; else None.
        here, there: position of s and of s' among those rows, shape (n,).
        actions: logged, (n, action_dim); by number, (n,), where they are discrete and many.
        rewards: (n,).
        alive: 1, or 0 where the world ended, (n, 1).
        next_actions, next_weights: per target policy, (n, k, action_dim) and (n, k), at s'; in training on
            many policies those of this step's alone.
            Many discrete actions come as the numbers of two that were drawn, (n, 2) each.
    """

    observations: Mapping[str, Tensor] | None
    z: Tensor | None
    here: Tensor
    there: Tensor
    actions: Tensor
    rewards: Tensor
    alive: Tensor
    next_actions: Sequence[Tensor]
    next_weights: Sequence[Tensor]

    def __len__(self) -> int:
        return len(self.rewards)

    def encode(self, encoder: Encoder) -> tuple[Tensor, Tensor]:
        """z of s and of s'; every observation is encoded once."""
        if self.z is not None:
            z = self.z
        else:
            assert self.observations is not None
            z = encoder(self.observations)
        return z[self.here], z[self.there]


class Batches:
    """Makes batches of a dataset's transitions for given target policies."""

    def __init__(
        self,
        dataset: Dataset,
        targets: Sequence[TargetActions],
        encoder: Encoder,
        transitions: NDArray[np.int64],
        *,
        batch_size: int,
        run_length: int,
        seed: int,
        rank: int = 0,
        world: int = 1,
        shift: int = 0,
        few: int | None = None,
    ) -> None:
        self.dataset, self.targets, self.encoder, self.device = dataset, targets, encoder, encoder.device
        self.batch_size, self.run_length, self.seed = min(batch_size, len(transitions)), run_length, seed
        self.rank, self.world, self.shift = rank, world, shift
        self.draws = dataset.discrete and dataset.action_dim > FEW_ACTIONS
        self.few = None if few is None or few >= len(targets) else few
        self.transitions = np.sort(transitions)
        broken = np.diff(self.dataset.rows[self.transitions]) != 1
        edges = np.concatenate([[0], np.flatnonzero(broken) + 1, [len(self.transitions)]])
        self.stretches = np.stack([edges[:-1], edges[1:]], axis=1)
        self.z = encoder.table(dataset)
        self._epoch: tuple[int, NDArray[np.int64]] | None = None

    @property
    def per_epoch(self) -> int:
        """Batches in one pass over the data; the rest that fills no batch, new each epoch, is left out."""
        return len(self.transitions) // self.batch_size

    def at(self, step: int, chunk: int | None = None) -> list[Batch]:
        """The batch of a step (this process's share), in pieces of at most `chunk` transitions."""
        epoch, position = divmod(step, self.per_epoch)
        order = self._order(epoch)
        first = position * self.batch_size
        share = self.batch_size // self.world
        chosen = order[first + self.rank * share : first + (self.rank + 1) * share]
        size = len(chosen) if chunk is None else chunk
        moves, policies = self._moves(step), self._policies(step)
        uniforms = None
        if self.draws:
            generator = np.random.default_rng([self.seed, step, salts.ACTIONS_OF_A_STEP])
            uniforms = generator.random((self.world, share, 2))[self.rank]
        return [
            self.gather(
                chosen[begin : begin + size],
                moves,
                policies,
                None if uniforms is None else uniforms[begin : begin + size],
            )
            for begin in range(0, len(chosen), size)
        ]

    def _policies(self, step: int) -> NDArray[np.int64] | None:
        """The policies of this step, the same for every process; None: all of them.

        Each is as likely as any other, so that the loss, a mean over policies, is right in the mean.
        """
        if self.few is None:
            return None
        generator = np.random.default_rng([self.seed, step, salts.POLICIES_OF_A_STEP])
        return np.sort(generator.choice(len(self.targets), self.few, replace=False))

    def _moves(self, step: int) -> NDArray[np.int64] | None:
        """How far each observation's images move in this step, (rows, 2); the same for any chunks."""
        if not self.shift or self.z is not None:
            return None
        rows = len(self.dataset) + self.dataset.num_episodes
        generator = np.random.default_rng([self.seed, step, salts.IMAGE_SHIFTS])
        return generator.integers(-self.shift, self.shift + 1, (rows, 2))

    def _order(self, epoch: int) -> NDArray[np.int64]:
        """All transitions, run after run in random order."""
        if self._epoch is not None and self._epoch[0] == epoch:
            return self._epoch[1]
        generator = np.random.default_rng([self.seed, epoch])
        if self.run_length == 1:
            order = generator.permutation(self.transitions)
        else:
            cuts = [
                np.unique(
                    np.clip(np.arange(begin - phase, end + self.run_length, self.run_length), begin, end)
                )
                for (begin, end), phase in zip(
                    self.stretches, generator.integers(0, self.run_length, len(self.stretches)), strict=True
                )
            ]
            starts = np.concatenate([edges[:-1] for edges in cuts])
            lengths = np.concatenate([np.diff(edges) for edges in cuts])
            shuffled = generator.permutation(len(starts))
            starts, lengths = starts[shuffled], lengths[shuffled]
            within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            order = self.transitions[np.repeat(starts, lengths) + within]
        self._epoch = (epoch, order)
        return order

    def gather(
        self,
        transitions: NDArray[np.int64],
        moves: NDArray[np.int64] | None = None,
        policies: NDArray[np.int64] | None = None,
        uniforms: NDArray[np.float64] | None = None,
    ) -> Batch:
        """The batch of these transitions; shared observations are taken once.

        Args:
            transitions: their numbers.
            moves: how far each observation's images move; None: not at all.
            policies: numbers of the policies whose next actions are wanted; None: all.
            uniforms: what many discrete actions are drawn with, (n, 2); None: always the same numbers.
        """
        dataset, device = self.dataset, self.device
        here = dataset.rows[transitions]
        if self.z is not None:
            z, observations = self.z, None
            positions = torch.from_numpy(np.stack([here, here + 1]))
        else:
            rows, inverse = np.unique(np.concatenate([here, here + 1]), return_inverse=True)
            z, observations = None, self.encoder.read(dataset.observe(rows), device)
            if moves is not None:
                by = torch.from_numpy(moves[rows]).to(device)
                observations = {
                    key: shifted(value, by) if value.dtype == torch.uint8 else value
                    for key, value in observations.items()
                }
            positions = torch.from_numpy(inverse.reshape(2, -1))
        positions = positions.to(device)
        wanted = range(len(self.targets)) if policies is None else policies
        following = [self.targets[number].take(here + 1) for number in wanted]
        if uniforms is None:
            uniforms = np.random.default_rng([self.seed, salts.ACTIONS_OF_A_STEP]).random((len(here), 2))
        return Batch(
            observations=observations,
            z=z,
            here=positions[0],
            there=positions[1],
            actions=self._logged(transitions).to(device),
            rewards=torch.from_numpy(dataset.rewards[transitions]).to(device),
            alive=torch.from_numpy(~dataset.terminated[transitions]).to(device)[:, None].float(),
            next_actions=[
                torch.from_numpy(t.drawn(uniforms) if self.draws else np.ascontiguousarray(t.actions)).to(
                    device
                )
                for t in following
            ],
            next_weights=[
                torch.from_numpy(np.full((len(here), 2), 0.5) if self.draws else t.weights).to(device)
                for t in following
            ],
        )

    def _logged(self, transitions: NDArray[np.int64]) -> Tensor:
        actions = self.dataset.actions[transitions]
        if self.draws:
            return torch.from_numpy(actions.reshape(len(actions)).astype(np.int64))
        return torch.from_numpy(self.dataset.action_matrix(actions))
