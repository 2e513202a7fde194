"""What the Lagrangian reads, as tensors on one device: transitions, start states, the policy's actions."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from bcrl import salts
from bcrl.data.dataset import Array
from bcrl.policies.policy import FEW_ACTIONS, TargetActions
from bcrl.question import Question

_DRAWS, _MOST_CELLS = 8, 2**26


@dataclass(frozen=True, eq=False)
class Choices:
    """States and the policy's actions there.

    Attributes:
        z: states, (n, dz).
        actions: (n, k, A), standardised where continuous.
        weights: of these actions, (n, k).
    """

    z: Tensor
    actions: Tensor
    weights: Tensor

    def take(self, rows: Tensor) -> "Choices":
        return Choices(self.z[rows], self.actions[rows], self.weights[rows])


@dataclass(frozen=True, eq=False)
class Batch:
    """Transitions drawn from the log, and start states drawn beside them.

    Attributes:
        z, actions, rewards, terminated: of the transitions, n rows each.
        following: their next states and the policy's actions there.
        start: n start states and the policy's actions there.
    """

    z: Tensor
    actions: Tensor
    rewards: Tensor
    terminated: Tensor
    following: Choices
    start: Choices


@dataclass(frozen=True, eq=False)
class DiceData:
    """The log and one policy.

    Attributes:
        policy: the policy at every observation row, N + E of them.
        start: the policy at the start states.
        rows: row of s of each transition, (N,); s' is one row further.
        actions: logged actions, (N, A), standardised where continuous.
        rewards: standardised, (N,).
        terminated: (N,) bool.
        exact: average over all k actions (few discrete ones) instead of drawing one.
        noise: standard deviation of the noise on drawn actions, in their standardised unit.
        discount: g.
    """

    policy: Choices
    start: Choices
    rows: Tensor
    actions: Tensor
    rewards: Tensor
    terminated: Tensor
    exact: bool
    noise: float
    discount: float

    @classmethod
    def of(
        cls,
        question: Question,
        states: tuple[Tensor, Tensor],
        chosen: TargetActions,
        start_chosen: TargetActions,
        *,
        smoothing: float,
    ) -> "DiceData":
        """States, actions and rewards standardised.

        Args:
            question: the log and the discount.
            states: z of every observation row (N + E, dz), and of every start state (n0, dz).
            chosen: the policy's actions at every observation row.
            start_chosen: its actions at the start states.
            smoothing: noise on a deterministic policy's continuous actions, in logged standard deviations.
        """
        dataset, (z, start_z) = question.dataset, states
        few = chosen.weights.shape[1] <= FEW_ACTIONS
        if dataset.discrete and not few:
            generator = np.random.default_rng([question.seed, salts.MANY_ACTIONS])
            chosen, start_chosen = (_some(target, generator) for target in (chosen, start_chosen))
        device, centre, spread = z.device, z.mean(dim=0), z.std(dim=0)
        spread = torch.where(spread > 1e-6, spread, torch.ones_like(spread))
        logged = dataset.action_matrix(dataset.actions)
        shift, scale = np.zeros(logged.shape[1], np.float32), np.ones(logged.shape[1], np.float32)
        if not dataset.discrete:
            shift, scale = logged.mean(axis=0), np.where(logged.std(axis=0) > 1e-8, logged.std(axis=0), 1.0)

        def tensor(values: Array) -> Tensor:
            return torch.from_numpy(values.astype(np.float32)).to(device)

        def choices(z: Tensor, target: TargetActions) -> Choices:
            actions = tensor((target.actions - shift) / scale)
            return Choices((z - centre) / spread, actions, tensor(target.weights))

        deviation = float(dataset.rewards.std())
        # The absorbing state earns 0, which a shift of the rewards would change.
        mean = 0.0 if dataset.terminated.any() else float(dataset.rewards.mean())
        deterministic = chosen.actions.shape[1] == 1 and not dataset.discrete
        return cls(
            policy=choices(z, chosen),
            start=choices(start_z, start_chosen),
            rows=torch.from_numpy(dataset.rows).to(device),
            actions=tensor((logged - shift) / scale),
            rewards=tensor((dataset.rewards - mean) / (deviation if deviation > 1e-12 else 1.0)),
            terminated=torch.from_numpy(np.array(dataset.terminated)).to(device),
            exact=dataset.discrete and few,
            noise=smoothing if deterministic else 0.0,
            discount=question.discount,
        )

    @property
    def z(self) -> Tensor:
        """States of every observation row, (N + E, dz)."""
        return self.policy.z

    @cached_property
    def end_weight(self) -> float:
        """Weight of absorbing rows beside logged ones: as many as a log that went on recording would hold."""
        return min(1.0, float(self.terminated.double().mean()) / (1.0 - self.discount))

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        """Transitions and start states, with replacement."""
        index, start = (
            torch.randint(count, (size,), generator=generator).to(self.z.device)
            for count in (len(self.rows), len(self.start.z))
        )
        rows = self.rows[index]
        return Batch(
            z=self.z[rows],
            actions=self.actions[index],
            rewards=self.rewards[index],
            terminated=self.terminated[index],
            following=self._drawn(self.policy.take(rows + 1), generator),
            start=self._drawn(self.start.take(start), generator),
        )

    def _drawn(self, choices: Choices, generator: torch.Generator) -> Choices:
        """All k actions where the average is exact; else one of them, with fresh noise."""
        if self.exact:
            return choices
        n, k, _ = choices.actions.shape
        pick = torch.randint(k, (n,), generator=generator).to(choices.z.device)
        actions = self._shaken(choices.actions[torch.arange(n, device=choices.z.device), pick], generator)
        return Choices(choices.z, actions[:, None], choices.weights.new_ones(n, 1))

    def _shaken(self, actions: Tensor, generator: torch.Generator) -> Tensor:
        if self.noise == 0.0:
            return actions
        return actions + self.noise * torch.randn(actions.shape, generator=generator).to(actions.device)

    def average(
        self,
        function: Callable[[Tensor, Tensor], Tensor],
        choices: Choices,
        generator: torch.Generator,
        noise_draws: int = 1,
    ) -> Tensor:
        """The mean of function(z, action), (n, d), over the policy's actions and draws of their noise."""
        draws = noise_draws if self.noise > 0.0 else 1
        weights = choices.weights.double() / draws
        parts = [
            weights[:, k, None] * function(choices.z, self._shaken(choices.actions[:, k], generator))
            for k in range(choices.actions.shape[1])
            for _ in range(draws)
        ]
        return torch.stack(parts).sum(dim=0)


def _some(target: TargetActions, generator: np.random.Generator) -> TargetActions:
    """Draws that stand for many discrete actions: eight a state, fewer where they would take a quarter GB."""
    table = target.actions[0]
    count = int(np.clip(_MOST_CELLS // (len(target.weights) * len(table)), 1, _DRAWS))
    codes = target.spread_draws(count, generator)
    return TargetActions(table[codes], np.full(codes.shape, 1.0 / count))
