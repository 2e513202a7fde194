"""Algorithm 3's step: encode, sum moments, solve the inner problem, move phi.

Order of a step (Algorithm 3): M and rho first, for the features as they are; then phi, with the new M and
rho; then the target network. With the closed form there is no lag, and no target network is needed.

A batch too large to be encoded at once is encoded twice: without gradient for the moments, then chunk by
chunk with the gradient of the loss with respect to the moments (gradient caching). Several processes do the
same with their shares.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bcrl.networks import follow
from bcrl.representations.batches import Batch, Batches
from bcrl.representations.bellman_complete.correction import Correction
from bcrl.representations.bellman_complete.objective import (
    Objective,
    Terms,
    TorchMoments,
    average_over_processes,
    closed_form,
    merge_chunks,
    moments_of,
)
from bcrl.representations.bellman_complete.theta import GradientInner, InTheta
from bcrl.representations.features import FeatureNet
from bcrl.training import Precision, autocast, average_gradients

if TYPE_CHECKING:
    from bcrl.representations.bellman_complete.fitting import Choice
    from bcrl.representations.bellman_complete.recipe import BellmanComplete


@dataclass(eq=False)
class ChunkFeatures:
    """A chunk of the batch through the networks.

    `guess` is g(s, a) of the double-sampling correction; `noise` half the difference of the two draws that
    each next_phi is the mean of, where actions are drawn.
    """

    z: Tensor
    actions: Tensor
    phi: Tensor
    next_phi: list[Tensor]
    rewards: Tensor
    guess: list[Tensor] | None = None
    noise: list[Tensor] | None = None


class BellmanCompleteLearner:
    """What training.py's loop trains."""

    def __init__(
        self,
        recipe: "BellmanComplete",
        net: FeatureNet,
        batches: Batches,
        *,
        discount: float,
        steps: int,
        reward_variance: float,
        generator: torch.Generator,
        choice: "Choice",
        precision: Precision = "auto",
    ) -> None:
        self.choice, self.precision = choice, precision
        self.recipe, self.net, self.batches, self.discount, self.steps = recipe, net, batches, discount, steps
        self.batch_size, self.done = batches.batch_size, 0
        relative = recipe.metric == "whitened" and reward_variance > 1e-12
        self.reward_scale = reward_variance if relative else 1.0
        self.objective = Objective(recipe, discount=discount, reward_scale=self.reward_scale)
        self.optimiser = torch.optim.Adam(net.parameters(), lr=recipe.lr)
        self.target_tau = None if recipe.inner is None else recipe.inner.target_tau
        self.target = None if self.target_tau is None else copy.deepcopy(net).requires_grad_(False)
        # What is watched and handed out: phi itself, or the running mean of its weights.
        self.average = net if recipe.average_tau is None else copy.deepcopy(net).requires_grad_(False)
        policies, device = len(batches.targets), batches.device
        self.inner = self.correction = self.in_theta = None
        if recipe.inner is None and (recipe.bounds.m is not None or recipe.bounds.rho is not None):
            self.in_theta = InTheta(recipe.bounds, recipe.metric, recipe.ridge)
        if recipe.inner is not None:
            self.inner = GradientInner(
                net.dim, policies, lr=recipe.inner.lr, generator=generator, device=device
            )
        if recipe.double_sampling is not None:
            self.correction = Correction(
                net.head,
                net.dim,
                policies,
                steps=recipe.double_sampling.steps,
                lr=recipe.double_sampling.lr,
                generator=generator,
                device=device,
            )
        self.running: TorchMoments | None = None
        self.m: Tensor | None = None

    def step(self) -> Terms:
        """One update; the loss terms."""
        self._set_lr()
        chunks = self.batches.at(self.done, self.recipe.chunk)
        move_m, move_phi = self._turns()
        at_once = len(chunks) == 1
        with torch.set_grad_enabled(move_phi and at_once):
            features = [self._features(chunk) for chunk in chunks]
            local = self._moments(features)
        if self.correction is not None:
            self._guess(features, self._running(average_over_processes(local)))
            with torch.set_grad_enabled(move_phi and at_once):
                local = self._moments(features)
        self.running = self._running(average_over_processes(local))
        leaf = self.running.leaf()
        m, rho = self._solve(leaf, move=move_m)
        self.m = m.detach()
        loss, terms = self.objective(leaf, m, rho)
        if self.in_theta is not None:
            terms["theta_gap"] = self.in_theta.gap
        if move_phi:
            self.optimiser.zero_grad()
            torch.autograd.backward(loss)
            self._push_back(leaf.gradients(), local if at_once else None, chunks, features)
            terms["gradient_norm"] = self._move()
        self.done += 1
        return terms

    def _turns(self) -> tuple[bool, bool]:
        """Whether M and whether phi moves in this step: both, or one per epoch in turn (released code)."""
        if self.recipe.inner is None or self.recipe.inner.alternate == "step":
            return True, True
        phi_turn = (self.done // self.batches.per_epoch) % 2 == 1
        return not phi_turn, phi_turn

    def _features(self, batch: Batch) -> ChunkFeatures:
        with autocast(self.batches.device, self.precision):
            return self._forward(batch)

    def _forward(self, batch: Batch) -> ChunkFeatures:
        z, z_next = batch.encode(self.net.encoder)
        phi = self.net(z, batch.actions)
        next_net = self.net
        if self.target is not None:
            next_net = self.target
            with torch.no_grad():
                z_next = batch.encode(self.target.encoder)[1]
        if self.batches.draws:
            pairs = [next_net.draws_of_policy(z_next, codes) for codes in batch.next_actions]
            next_phi, noise = ([batch.alive * part for part in parts] for parts in zip(*pairs, strict=True))
            return ChunkFeatures(z.detach(), batch.actions, phi, next_phi, batch.rewards, noise=noise)
        next_phi = [
            batch.alive * next_net.of_policy(z_next, actions, weights)
            for actions, weights in zip(batch.next_actions, batch.next_weights, strict=True)
        ]
        return ChunkFeatures(z.detach(), batch.actions, phi, next_phi, batch.rewards)

    def _moments(self, chunks: list[ChunkFeatures]) -> TorchMoments:
        still = self.recipe.value_weight > 0.0
        parts = [
            moments_of(c.phi, c.next_phi, c.rewards, c.guess, noise=c.noise, still=still) for c in chunks
        ]
        return merge_chunks(parts, [len(chunk.rewards) for chunk in chunks])

    def _guess(self, chunks: list[ChunkFeatures], moments: TorchMoments) -> None:
        """Fit h on the whole batch (this process's share) and give every chunk its g(s, a)."""
        assert self.correction is not None
        phi = torch.cat([chunk.phi.detach() for chunk in chunks])
        next_phi = [torch.cat(parts) for parts in zip(*[chunk.next_phi for chunk in chunks], strict=True)]
        guess = self.correction.predict(
            torch.cat([chunk.z for chunk in chunks]),
            torch.cat([chunk.actions for chunk in chunks]),
            self._linear(phi, self._solve(moments, move=False)[0]),
            next_phi,
            moments.sigma.diagonal().clamp_min(1e-12).to(phi.dtype),
        )
        sizes = [len(chunk.rewards) for chunk in chunks]
        for number, chunk in enumerate(chunks):
            chunk.guess = [torch.split(g, sizes)[number] for g in guess]

    def _linear(self, phi: Tensor, m: Tensor) -> list[Tensor]:
        """M phi / discount of every policy: what a linear g would say."""
        step = m.detach() / self.discount if self.discount > 0.0 else 0.0 * m.detach()
        return [phi @ matrix.T for matrix in step.to(phi.dtype)]

    def _running(self, moments: TorchMoments) -> TorchMoments:
        """The moments of the loss: the batch's, or a running mean that passes the batch's gradient on."""
        fresh = TorchMoments(*[part.detach() for part in moments.parts])
        if self.running is None or self.recipe.running_moments is None:
            return fresh
        # Early on the mean is short, because the features still change fast.
        decay = min(self.recipe.running_moments, self.done / (self.done + 10.0))
        return self.running.scaled(decay) + fresh.scaled(1.0 - decay)

    def _solve(self, moments: TorchMoments, move: bool) -> tuple[Tensor, Tensor]:
        recipe = self.recipe
        if self.inner is None:
            if self.in_theta is not None:
                return self.in_theta.solve(moments, self.discount)
            return closed_form(moments, self.discount, recipe.ridge)
        if move:
            self.inner.step(moments, self.discount, recipe.reward_weight / self.reward_scale, recipe.bounds)
        return self.inner.m.detach(), self.inner.rho.detach()

    def _push_back(
        self,
        gradients: list[Tensor],
        moments: TorchMoments | None,
        chunks: list[Batch],
        features: list[ChunkFeatures],
    ) -> None:
        """Push the gradient back through the networks: from `moments`, or without them chunk by chunk."""
        if moments is not None:
            moments.backward(gradients)
            return
        count = sum(len(chunk) for chunk in chunks)
        for chunk, before in zip(chunks, features, strict=True):
            again = self._features(chunk)
            again.guess = before.guess
            self._moments([again]).scaled(len(chunk) / count).backward(gradients)

    def _move(self) -> Tensor:
        average_gradients(self.net)
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), self.recipe.grad_clip or math.inf)
        self.optimiser.step()
        if self.target is not None and self.target_tau is not None:
            follow(self.target, self.net, self.target_tau)
        if self.recipe.average_tau is not None:
            # Early on the mean is short; otherwise the first, random weights would count for a long time.
            follow(self.average, self.net, max(self.recipe.average_tau, 1.0 / (1.0 + 0.1 * self.done)))
        return norm

    def _set_lr(self) -> None:
        factor = 1.0
        if self.recipe.schedule == "cosine":
            warm = min(1.0, (self.done + 1) / max(1.0, 0.05 * self.steps))
            factor = warm * (0.5 * (1.0 + math.cos(math.pi * self.done / self.steps))) ** 2
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.lr * factor

    def judged(self, figures: Mapping[str, float], held_out: Batch | None) -> Mapping[str, float]:
        """Held-out figures, noted for the choice of features; with the correction, also how well g fits."""
        self.choice.see(figures, self.average)
        if self.correction is None or self.m is None or held_out is None:
            return figures
        with torch.no_grad():
            seen = self._forward(held_out)
        scale = seen.phi.square().mean(dim=0).clamp_min(1e-12)
        linear = self._linear(seen.phi, self.m)
        shares = self.correction.shares(seen.z, seen.actions, linear, seen.next_phi, scale)
        return {**figures, **shares}

    def state(self) -> dict[str, Any]:
        mean = self.recipe.running_moments is not None
        return {
            "done": self.done,
            "net": self.net.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "target": None if self.target is None else self.target.state_dict(),
            "average": None if self.average is self.net else self.average.state_dict(),
            "inner": None if self.inner is None else self.inner.state(),
            "in_theta": None if self.in_theta is None else self.in_theta.warm,
            "correction": None if self.correction is None else self.correction.state(),
            "running": list(self.running.parts) if self.running is not None and mean else None,
            "multiplier": self.objective.multiplier,
            "choice": self.choice.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.done, self.objective.multiplier = state["done"], state["multiplier"]
        self.net.load_state_dict(state["net"])
        self.optimiser.load_state_dict(state["optimiser"])
        if self.target is not None:
            self.target.load_state_dict(state["target"])
        if self.average is not self.net:
            self.average.load_state_dict(state["average"])
        if self.inner is not None:
            self.inner.restore(state["inner"])
        if self.in_theta is not None:
            self.in_theta.warm = state["in_theta"]
        if self.correction is not None:
            self.correction.restore(state["correction"])
        self.choice.restore(state["choice"])
        self.running = None if state["running"] is None else TorchMoments(*state["running"])
