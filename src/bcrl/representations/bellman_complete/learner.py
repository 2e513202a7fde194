"""One step of representation learning: encode, sum moments, solve the inner problem, move phi.

Order of a step (Algorithm 3): M and rho first, for the features as they are; then phi, with the new M and rho; then the
target network. With the closed form there is no lag, and no target network is needed.

A batch too large to be encoded at once is encoded twice: without gradient for the moments, then chunk by chunk with the
gradient of the loss with respect to the moments (gradient caching). Several processes do the same with their shares.
"""

import copy
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bcrl.representations.batches import Batch, Batches
from bcrl.representations.bellman_complete.correction import Correction, average_gradients
from bcrl.representations.bellman_complete.inner import GradientInner, closed_form, constrained
from bcrl.representations.bellman_complete.moments import TorchMoments, average_over_processes
from bcrl.representations.bellman_complete.objective import (
    completeness_loss,
    design_value,
    endless,
    iterates,
    reward_loss,
    value_loss,
)
from bcrl.representations.bellman_complete.seen import Seen, merged, policy_features
from bcrl.representations.fitted import FeatureNet
from bcrl.training import autocast

if TYPE_CHECKING:
    from bcrl.representations.bellman_complete.recipe import BellmanComplete
    from bcrl.representations.bellman_complete.watch import Choice

Terms = dict[str, Tensor | float]


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
        reward_scale: float,
        generator: torch.Generator,
        choice: "Choice",
    ) -> None:
        self.choice = choice
        self.recipe, self.net, self.batches, self.discount, self.steps = recipe, net, batches, discount, steps
        self.batch_size, self.done = batches.batch_size, 0
        self.reward_scale = reward_scale if recipe.metric == "whitened" else 1.0
        self.still = recipe.value_weight > 0.0
        self.optimiser = torch.optim.Adam(net.parameters(), lr=recipe.lr)
        self.target = copy.deepcopy(net).requires_grad_(False) if recipe.target_tau is not None else None
        # What is watched and handed out: phi itself, or the running mean of its weights.
        self.average = net if recipe.average_tau is None else copy.deepcopy(net).requires_grad_(False)
        policies, device = len(batches.targets), batches.device
        self.inner = self.correction = None
        if recipe.inner == "gradient":
            self.inner = GradientInner(
                net.dim, policies, lr=recipe.inner_lr, generator=generator, device=device
            )
        if recipe.double_sampling:
            self.correction = Correction(
                net.head.z_dim,
                net.head.action_dim,
                net.dim,
                policies,
                steps=recipe.g_steps,
                lr=recipe.g_lr,
                hidden=recipe.hidden,
                layers=recipe.head_layers,
                activation=recipe.activation,
                generator=generator,
                device=device,
            )
        self.running: TorchMoments | None = None
        self.m: Tensor | None = None
        self.multiplier = 0.0
        # Until the discount has forgotten all but 5 %.
        self.reach = min(500, math.ceil(3.0 / max(1.0 - discount, 1e-3)))

    def step(self) -> Terms:
        """One update; the loss terms."""
        self._set_lr()
        chunks = self.batches.at(self.done, self.recipe.chunk)
        move_m, move_phi = self._turns()
        whole = len(chunks) == 1
        with torch.set_grad_enabled(move_phi and whole):
            seen = [self._see(chunk) for chunk in chunks]
            local = merged([part.moments(still=self.still) for part in seen], chunks)
        if self.correction is not None:
            self._guess(seen, self._running(average_over_processes(local)))
            with torch.set_grad_enabled(move_phi and whole):
                local = merged([part.moments(still=self.still) for part in seen], chunks)
        self.running = self._running(average_over_processes(local))
        leaf = self.running.leaf()
        m, rho = self._solve(leaf, move=move_m)
        self.m = m.detach()
        loss, terms = self._loss(leaf, m, rho)
        if move_phi:
            self.optimiser.zero_grad()
            torch.autograd.backward(loss)
            self._pull(leaf.gradients(), local if whole else None, chunks, seen)
            terms["gradient_norm"] = self._move()
        self.done += 1
        return terms

    def _turns(self) -> tuple[bool, bool]:
        """Whether M and whether phi moves in this step: both, or in whole epochs by turns as the released code does."""
        if self.recipe.alternate == "step":
            return True, True
        phi_turn = (self.done // self.batches.per_epoch) % 2 == 1
        return not phi_turn, phi_turn

    def _see(self, batch: Batch) -> Seen:
        with autocast(self.batches.device, self.recipe.precision):
            return self._forward(batch)

    def _forward(self, batch: Batch) -> Seen:
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
        return Seen(z.detach(), batch.actions, phi, ahead, batch.rewards)

    def _guess(self, seen: list[Seen], moments: TorchMoments) -> None:
        """Fit h on the whole batch (this process's share) and give every chunk its g(s, a)."""
        assert self.correction is not None
        phi = torch.cat([part.phi.detach() for part in seen])
        ahead = [torch.cat(parts) for parts in zip(*[part.ahead for part in seen], strict=True)]
        guess = self.correction.predict(
            torch.cat([part.z for part in seen]),
            torch.cat([part.actions for part in seen]),
            self._linear(phi, self._solve(moments, move=False)[0]),
            ahead,
            moments.sigma.diagonal().clamp_min(1e-12).to(phi.dtype),
        )
        sizes = [len(part.rewards) for part in seen]
        for number, part in enumerate(seen):
            part.guess = [torch.split(g, sizes)[number] for g in guess]

    def _linear(self, phi: Tensor, m: Tensor) -> list[Tensor]:
        """M phi / discount of every policy: what a linear g would say."""
        step = m.detach() / self.discount if self.discount > 0.0 else 0.0 * m.detach()
        return [phi @ matrix.T for matrix in step.to(phi.dtype)]

    @property
    def _keeps_mean(self) -> bool:
        return self.recipe.moments == "running"

    def _running(self, moments: TorchMoments) -> TorchMoments:
        """Where the loss is taken: at the batch's moments, or at a running mean through which the batch's gradient passes."""
        fresh = TorchMoments(*[part.detach() for part in moments.parts])
        if self.running is None or not self._keeps_mean:
            return fresh
        # Early on the mean is short, because the features still change fast.
        decay = min(self.recipe.decay, self.done / (self.done + 10.0))
        return self.running.scaled(decay) + fresh.scaled(1.0 - decay)

    def _solve(self, moments: TorchMoments, move: bool) -> tuple[Tensor, Tensor]:
        recipe = self.recipe
        bounds = (recipe.spectral_bound, recipe.reward_bound)
        if self.inner is None:
            return constrained(*closed_form(moments, self.discount, recipe.ridge), *bounds)
        if move:
            self.inner.step(moments, self.discount, recipe.reward_weight / self.reward_scale, *bounds)
        return self.inner.m.detach(), self.inner.rho.detach()

    def _loss(self, moments: TorchMoments, m: Tensor, rho: Tensor) -> tuple[Tensor, Terms]:
        recipe = self.recipe
        complete = completeness_loss(moments, m, self.discount, metric=recipe.metric, ridge=recipe.ridge)
        reward = reward_loss(moments, rho) / self.reward_scale
        terms: Terms = {"completeness": complete.detach(), "reward": reward.detach()}
        loss = recipe.reward_weight * reward
        if self.still:
            directions = iterates(m, rho, moments.sigma, self.reach)
            value = value_loss(moments, m, directions, self.discount) / self.reward_scale
            terms["value_residual"] = value.detach()
            # An incomplete step is paid at every step of the horizon, so completeness gains on the value's own residuals
            # with the horizon's square.
            near = 1.0 - endless(self.discount) ** 2
            loss, complete = near * (loss + recipe.value_weight * value), complete / near
        assert recipe.completeness_weight is not None
        loss = loss + recipe.completeness_weight * complete
        if recipe.design != "none":
            design = design_value(moments.sigma, recipe.design, recipe.jitter)
            terms["design"] = design.detach()
            if recipe.design_constraint is None:
                loss = loss - recipe.design_weight * design
            else:
                loss = loss + self._constraint(design, recipe.design_constraint)
                terms["multiplier"] = self.multiplier
        terms["loss"] = loss.detach()
        terms["feature_norm"] = torch.trace(moments.sigma.detach()).sqrt()
        return loss, terms

    def _constraint(self, value: Tensor, beta: float) -> Tensor:
        """mu (1 - R_E / (beta/2)), or mu (log(beta/2) - R_D / d); mu climbs while the constraint is broken."""
        by_kind = {"E": 1.0 - value / (beta / 2.0), "D": math.log(beta / 2.0) - value / self.net.dim}
        short = by_kind[self.recipe.design]
        self.multiplier = max(0.0, self.multiplier + self.recipe.multiplier_lr * float(short.detach()))
        return self.multiplier * short

    def _pull(
        self, gradients: list[Tensor], whole: TorchMoments | None, chunks: list[Batch], seen: list[Seen]
    ) -> None:
        """The gradient with respect to the moments, back through the networks."""
        if whole is not None:
            whole.backward(gradients)
            return
        count = sum(len(chunk) for chunk in chunks)
        for chunk, before in zip(chunks, seen, strict=True):
            again = self._see(chunk)
            again.guess = before.guess
            again.moments(still=self.still).scaled(len(chunk) / count).backward(gradients)

    def _move(self) -> Tensor:
        average_gradients(self.net)
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), self.recipe.grad_clip or math.inf)
        self.optimiser.step()
        if self.target is not None and self.recipe.target_tau is not None:
            _follow(self.target, self.net, self.recipe.target_tau)
        if self.recipe.average_tau is not None:
            # Early on the mean is short, or the first, random weights would weigh for long.
            _follow(self.average, self.net, max(self.recipe.average_tau, 1.0 / (1.0 + 0.1 * self.done)))
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
        shares = self.correction.shares(
            seen.z, seen.actions, self._linear(seen.phi, self.m), seen.ahead, scale
        )
        return {**figures, **shares}

    def state(self) -> dict[str, Any]:
        return {
            "done": self.done,
            "net": self.net.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "target": None if self.target is None else self.target.state_dict(),
            "average": None if self.average is self.net else self.average.state_dict(),
            "inner": None if self.inner is None else self.inner.state(),
            "correction": None if self.correction is None else self.correction.state(),
            "running": list(self.running.parts) if self.running is not None and self._keeps_mean else None,
            "multiplier": self.multiplier,
            "choice": self.choice.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.done, self.multiplier = state["done"], state["multiplier"]
        self.net.load_state_dict(state["net"])
        self.optimiser.load_state_dict(state["optimiser"])
        if self.target is not None:
            self.target.load_state_dict(state["target"])
        if self.average is not self.net:
            self.average.load_state_dict(state["average"])
        if self.inner is not None:
            self.inner.restore(state["inner"])
        if self.correction is not None:
            self.correction.restore(state["correction"])
        self.choice.restore(state["choice"])
        self.running = None if state["running"] is None else TorchMoments(*state["running"])


def _follow(slow: nn.Module, fast: nn.Module, rate: float) -> None:
    with torch.no_grad():
        for behind, ahead in zip(slow.parameters(), fast.parameters(), strict=True):
            behind.lerp_(ahead, rate)
