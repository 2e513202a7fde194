"""One step of representation learning: encode, sum moments, solve the inner problem, move phi.

Order of a step (Algorithm 3): M and rho first, for the features as they are; then phi, with the new M and rho; then the
target network. With the closed form there is no lag, and no target network is needed.
"""

import copy
import math
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bcrl.networks import Head
from bcrl.representations.batches import Batch, Batches
from bcrl.representations.bellman_complete.inner import GradientInner, closed_form, constrained
from bcrl.representations.bellman_complete.moments import TorchMoments, average_over_processes, moments_of
from bcrl.representations.bellman_complete.objective import completeness_loss, design_value, reward_loss
from bcrl.representations.fitted import FeatureNet

if TYPE_CHECKING:
    from bcrl.representations.bellman_complete.recipe import BellmanComplete


def policy_features(net: FeatureNet, z: Tensor, actions: Tensor, weights: Tensor) -> Tensor:
    """phi(s, pi) = sum_k w_k phi(s, a_k), shape (n, d)."""
    n, k, _ = actions.shape
    if k == 1:
        return net(z, actions[:, 0])  # type: ignore[no-any-return]
    features = net(z.repeat_interleave(k, dim=0), actions.flatten(0, 1)).view(n, k, -1)
    averaged: Tensor = (features * weights.to(features.dtype)[:, :, None]).sum(dim=1)
    return averaged


class BellmanCompleteLearner:
    """What training.py's loop trains."""

    def __init__(
        self,
        recipe: "BellmanComplete",
        net: FeatureNet,
        batches: Batches,
        *,
        policies: int,
        discount: float,
        steps: int,
        reward_scale: float,
        generator: torch.Generator,
    ) -> None:
        self.recipe, self.net, self.batches, self.discount, self.steps = recipe, net, batches, discount, steps
        self.batch_size, self.done = batches.batch_size, 0
        self.reward_weight = recipe.reward_weight / (reward_scale if recipe.metric == "whitened" else 1.0)
        self.optimiser = torch.optim.Adam(net.parameters(), lr=recipe.lr)
        self.target = copy.deepcopy(net).requires_grad_(False) if recipe.target_tau is not None else None
        self.inner = (
            GradientInner(net.dim, policies, lr=recipe.inner_lr, generator=generator, device=batches.device)
            if recipe.inner == "gradient"
            else None
        )
        self.correction = (
            Correction(recipe, net, policies, generator, batches.device) if recipe.double_sampling else None
        )
        self.running: TorchMoments | None = None
        self.multiplier = 0.0

    def step(self) -> dict[str, Tensor | float]:
        """One update; the loss terms."""
        self._set_lr()
        chunks = self.batches.at(self.done, self.recipe.chunk)
        train_phi = self.recipe.alternate == "step" or (self.done // self.batches.per_epoch) % 2 == 1
        whole = len(chunks) == 1
        with torch.set_grad_enabled(train_phi and whole):
            parts = [self._moments(chunk, learn=True).scaled(len(chunk)) for chunk in chunks]
        count = sum(len(chunk) for chunk in chunks)
        local = sum(parts[1:], start=parts[0]).scaled(1.0 / count)
        leaf = self._running(average_over_processes(local)).leaf()
        m, rho = self._solve(leaf)
        loss, terms = self._loss(leaf, m, rho)
        if train_phi:
            self.optimiser.zero_grad()
            torch.autograd.backward(loss)
            gradients = leaf.gradients()
            if whole:
                local.backward(gradients)
            else:
                for chunk in chunks:
                    self._moments(chunk, learn=False).scaled(len(chunk) / count).backward(gradients)
            terms["gradient_norm"] = self._move()
        self.done += 1
        return terms

    def _moments(self, batch: Batch, *, learn: bool) -> TorchMoments:
        z, z_next = batch.encode(self.net.encoder)
        phi = self.net(z, batch.actions)
        ahead_net = self.net
        if self.target is not None:
            ahead_net = self.target
            with torch.no_grad():
                z_next = batch.encode(self.target.encoder)[1]
        ahead = [
            batch.alive * policy_features(ahead_net, z_next, actions, weights)
            for actions, weights in zip(batch.next_actions, batch.next_weights, strict=True)
        ]
        if self.correction is None:
            return moments_of(phi, ahead, batch.rewards)
        guess = self.correction.predict(z, batch.actions, phi, ahead, learn=learn)
        return moments_of(phi, ahead, batch.rewards, guess)

    def _running(self, moments: TorchMoments) -> TorchMoments:
        """The moments at which the loss is taken: the batch's, or a running mean that the batch's gradient passes through."""
        if self.recipe.moments == "batch":
            return moments
        fresh = TorchMoments(*[part.detach() for part in moments.parts])
        # Early on the mean is short, because the features still change fast.
        decay = min(self.recipe.decay, self.done / (self.done + 10.0))
        self.running = (
            fresh if self.running is None else self.running.scaled(decay) + fresh.scaled(1.0 - decay)
        )
        return self.running

    def _solve(self, moments: TorchMoments) -> tuple[Tensor, Tensor]:
        recipe = self.recipe
        bounds = (recipe.spectral_bound, recipe.reward_bound)
        if self.inner is None:
            return constrained(*closed_form(moments, self.discount, recipe.ridge), *bounds)
        train_m = recipe.alternate == "step" or (self.done // self.batches.per_epoch) % 2 == 0
        if train_m:
            self.inner.step(moments, self.discount, self.reward_weight, *bounds)
        return self.inner.m.detach(), self.inner.rho.detach()

    def _loss(
        self, moments: TorchMoments, m: Tensor, rho: Tensor
    ) -> tuple[Tensor, dict[str, Tensor | float]]:
        recipe = self.recipe
        complete = completeness_loss(moments, m, self.discount, metric=recipe.metric, ridge=recipe.ridge)
        reward = self.reward_weight * reward_loss(moments, rho)
        terms: dict[str, Tensor | float] = {"completeness": complete.detach(), "reward": reward.detach()}
        loss = complete + reward if recipe.completeness else 0.0 * complete
        if recipe.design != "none":
            value = design_value(moments.sigma, recipe.design, recipe.jitter)
            terms["design"] = value.detach()
            if recipe.design_constraint is None:
                loss = loss - recipe.design_weight * value
            else:
                loss = loss + self._constraint(value, recipe.design_constraint)
                terms["multiplier"] = self.multiplier
        terms["loss"] = loss.detach()
        terms["feature_norm"] = torch.trace(moments.sigma.detach()).sqrt()
        return loss, terms

    def _constraint(self, value: Tensor, beta: float) -> Tensor:
        """mu (1 - R_E / (beta/2)), or mu (log(beta/2) - R_D / d); mu climbs while the constraint is broken."""
        by_kind = {"E": 1.0 - value / (beta / 2.0), "D": math.log(beta / 2.0) - value / self.net.dim}
        short = by_kind[self.recipe.design]
        self.multiplier = max(0.0, self.multiplier + self.recipe.multiplier_lr * float(short))
        return self.multiplier * short

    def _move(self) -> Tensor:
        parameters = [p for p in self.net.parameters() if p.grad is not None]
        if dist.is_initialized():
            flat = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
            dist.all_reduce(flat)
            sizes = [p.numel() for p in parameters]
            for p, grad in zip(parameters, torch.split(flat / dist.get_world_size(), sizes), strict=True):
                p.grad = grad.view_as(p)
        norm = nn.utils.clip_grad_norm_(parameters, self.recipe.grad_clip or math.inf)
        self.optimiser.step()
        if self.target is not None and self.recipe.target_tau is not None:
            with torch.no_grad():
                for slow, fast in zip(self.target.parameters(), self.net.parameters(), strict=True):
                    slow.lerp_(fast, self.recipe.target_tau)
        return norm

    def _set_lr(self) -> None:
        recipe = self.recipe
        factor = 1.0
        if recipe.schedule == "cosine":
            warm = min(1.0, (self.done + 1) / max(1.0, 0.05 * self.steps))
            factor = warm * 0.5 * (1.0 + math.cos(math.pi * self.done / self.steps))
        for group in self.optimiser.param_groups:
            group["lr"] = recipe.lr * factor

    def state(self) -> dict[str, Any]:
        return {
            "done": self.done,
            "net": self.net.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "target": None if self.target is None else self.target.state_dict(),
            "inner": None if self.inner is None else self.inner.state(),
            "correction": None if self.correction is None else self.correction.state(),
            "running": None if self.running is None else list(self.running.parts),
            "multiplier": self.multiplier,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.done, self.multiplier = state["done"], state["multiplier"]
        self.net.load_state_dict(state["net"])
        self.optimiser.load_state_dict(state["optimiser"])
        if self.target is not None:
            self.target.load_state_dict(state["target"])
        if self.inner is not None:
            self.inner.restore(state["inner"])
        if self.correction is not None:
            self.correction.restore(state["correction"])
        self.running = None if state["running"] is None else TorchMoments(*state["running"])


class Correction:
    """The class G of the double-sampling correction: g(s, a) = (least squares prediction of phi') + h(s, a), h a network.

    h starts at zero, so an untrained g makes the corrected loss zero, not negative. Several steps of h on detached
    features come before each step of phi, on the same batch.
    """

    def __init__(
        self,
        recipe: "BellmanComplete",
        net: FeatureNet,
        policies: int,
        generator: torch.Generator,
        device: torch.device,
    ) -> None:
        self.steps = recipe.g_steps
        self.heads = nn.ModuleList(
            Head(
                net.head.z_dim,
                net.head.action_dim,
                net.dim,
                hidden=recipe.hidden,
                layers=recipe.head_layers,
                activation=recipe.activation,
                generator=generator,
            )
            for _ in range(policies)
        ).to(device)
        for head in self.heads:
            nn.init.zeros_(head.mlp[-1].weight)  # type: ignore[index,union-attr,arg-type]
        self.optimiser = torch.optim.Adam(self.heads.parameters(), lr=recipe.g_lr)

    def predict(
        self, z: Tensor, actions: Tensor, phi: Tensor, ahead: list[Tensor], *, learn: bool
    ) -> list[Tensor]:
        """g_k(s, a) for every policy, without gradient, after this batch's steps of h."""
        z, phi = z.detach(), phi.detach()
        linear = torch.linalg.lstsq(
            phi.double(), torch.cat([a.detach() for a in ahead], dim=1).double()
        ).solution
        lines = torch.split((phi.double() @ linear).to(phi.dtype), phi.shape[1], dim=1)
        targets = [a.detach() - line for a, line in zip(ahead, lines, strict=True)]
        scale = phi.square().mean(dim=0).clamp_min(1e-12)
        if learn:
            with torch.enable_grad():
                for _ in range(self.steps):
                    losses = [
                        ((head(z, actions) - target).square() / scale).mean()
                        for head, target in zip(self.heads, targets, strict=True)
                    ]
                    self.optimiser.zero_grad()
                    torch.autograd.backward(torch.stack(losses).sum())
                    self.optimiser.step()
        with torch.no_grad():
            return [line + head(z, actions) for head, line in zip(self.heads, lines, strict=True)]

    def state(self) -> dict[str, Any]:
        return {"heads": self.heads.state_dict(), "optimiser": self.optimiser.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        self.heads.load_state_dict(state["heads"])
        self.optimiser.load_state_dict(state["optimiser"])
