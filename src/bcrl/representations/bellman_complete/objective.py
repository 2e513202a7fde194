"""The objective of Chang et al. (2022), every term a function of a batch's second moments, in float64.

    sigma = E[phi phi^T],  b = E[phi r],  and for target policies k  c_k = E[phi phi'_k^T],
    sigma_next_k = E[phi'_k phi'_k^T]

Because the loss sees the batch through these means only, a batch may be encoded in chunks, or by several
processes: sum the moments, differentiate the loss with respect to them once, and push that gradient back
through each part. The result is the gradient of the whole batch, log det included (a mean of per-part log
dets is a different objective).

    J(phi, M, rho) = E || [M; rho^T] phi(s, a) - [discount phi(s', pi); r] ||^2  -  lambda R(phi)

    completeness   tr R_M,               R_M = M sigma M^T - discount (M c + (M c)^T) + discount^2 sigma_next
    reward         rho^T sigma rho - 2 rho^T b + E[r^2]
    D-design       log det sigma         (Cholesky in float64)
    E-design       lambda_min(sigma)

    value          sum_k w_k^T R_M w_k,  w_0 = rho, w_{k+1} = M^T w_k, phi' held still

Scale traps: the plain objective shrinks with the features, and with a target network nothing opposes the
design term's growth. The whitened metric measures the same residual relative to the features, tr(sigma^{-1}
R_M) / d, the mean over functions w^T phi with ||w^T phi||_nu = 1, and the reward's relative to its variance:
it does not change when features are mixed by any invertible matrix, so neither the scale nor a direction of
the features can make it small.

The value term is not in the paper. LSPE only ever backs up its own iterates, sums of w_0 .. w_k, so their
residuals are the ones that the estimate pays for, in the reward's own unit. phi' is held still there: phi(s,
a) regresses on it and finds its conditional mean, so random transitions cause no double-sampling bias and
nothing is gained by making phi' constant.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from bcrl.representations.features import training_discount

if TYPE_CHECKING:
    from bcrl.representations.bellman_complete.recipe import BellmanComplete, Design

Metric = Literal["whitened", "plain"]
DesignKind = Literal["D", "E"]
Terms = dict[str, Tensor | float]


@dataclass(frozen=True, eq=False)
class TorchMoments:
    """Means over a batch; phi' is zero after termination.

    Attributes:
        sigma: (d, d).
        c: (policies, d, d).
        sigma_next: (policies, d, d); E[gbar gbar^T] in expectation where the double-sampling correction is
            on.
        b: (d,).
        reward_square: ().
        c_still: equal to c, but its gradient moves phi only, not phi'; (0, d, d) where nothing asks for it.
    """

    sigma: Tensor
    c: Tensor
    sigma_next: Tensor
    b: Tensor
    reward_square: Tensor
    c_still: Tensor

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return (self.sigma, self.c, self.sigma_next, self.b, self.reward_square, self.c_still)

    def leaf(self) -> "TorchMoments":
        """The same numbers, cut off from the batch and ready to be differentiated."""
        return TorchMoments(*[part.detach().requires_grad_() for part in self.parts])

    def gradients(self) -> list[Tensor]:
        """What `backward` left on a leaf."""
        return [torch.zeros_like(part) if part.grad is None else part.grad for part in self.parts]

    def __add__(self, other: "TorchMoments") -> "TorchMoments":
        return TorchMoments(*[a + b for a, b in zip(self.parts, other.parts, strict=True)])

    def scaled(self, factor: float) -> "TorchMoments":
        return TorchMoments(*[factor * part for part in self.parts])

    def backward(self, gradients: Sequence[Tensor]) -> None:
        """Push the loss's gradient with respect to the moments back into the networks."""
        live = [(part, grad) for part, grad in zip(self.parts, gradients, strict=True) if part.requires_grad]
        torch.autograd.backward([part for part, _ in live], [grad for _, grad in live])


def moments_of(
    phi: Tensor,
    next_phi: Sequence[Tensor],
    rewards: Tensor,
    predicted: Sequence[Tensor] | None = None,
    *,
    noise: Sequence[Tensor] | None = None,
    still: bool = False,
) -> TorchMoments:
    """Means over the rows of a batch.

    Args:
        phi: phi(s, a), shape (n, d).
        next_phi: phi(s', pi_k) for every target policy, zero after termination, each (n, d).
        rewards: shape (n,).
        predicted: g_k(s, a), predictions of E[phi'_k | s, a] from the double-sampling class, each (n, d)
            without gradient. E[phi' phi'^T] is then replaced by E[phi' g^T + g phi'^T - g g^T], which has no
            noise term.
        noise: half the difference, (n, d), of the two draws of the action that each phi'_k is the mean of:
            E[phi' phi'^T] is then the product of the two.
        still: also give `c_still`.
    """
    n = len(phi)
    phi, rewards = phi.double(), rewards.double()
    nexts = torch.stack([features.double() for features in next_phi])
    if predicted is None:
        second = nexts.transpose(1, 2) @ nexts
        if noise is not None:
            halves = torch.stack([half.double() for half in noise])
            second = second - halves.transpose(1, 2) @ halves
    else:
        guess = torch.stack([features.double() for features in predicted])
        cross = nexts.transpose(1, 2) @ guess
        second = cross + cross.transpose(1, 2) - guess.transpose(1, 2) @ guess
    return TorchMoments(
        sigma=phi.T @ phi / n,
        c=phi.T @ nexts / n,
        sigma_next=second / n,
        b=phi.T @ rewards / n,
        reward_square=rewards @ rewards / n,
        c_still=phi.T @ (nexts if still else nexts[:0]).detach() / n,
    )


def merge_chunks(parts: Sequence[TorchMoments], sizes: Sequence[int]) -> TorchMoments:
    """The whole batch's means from those of its chunks."""
    if len(parts) == 1:
        return parts[0]
    scaled = [part.scaled(size / sum(sizes)) for part, size in zip(parts, sizes, strict=True)]
    return sum(scaled[1:], start=scaled[0])


def average_over_processes(moments: TorchMoments) -> TorchMoments:
    """The global batch's moments; each process must hold a batch of the same size."""
    if not dist.is_initialized():
        return moments
    flat = torch.cat([part.detach().flatten() for part in moments.parts])
    dist.all_reduce(flat)
    pieces = torch.split(flat / dist.get_world_size(), [part.numel() for part in moments.parts])
    return TorchMoments(*[piece.view(part.shape) for piece, part in zip(pieces, moments.parts, strict=True)])


class Objective:
    """The loss of a recipe. Its only state is the multiplier of the design's constraint.

    Args:
        recipe: gives the weights.
        discount: of the values.
        reward_scale: in whose units the reward's and the value's residuals are measured.
    """

    def __init__(self, recipe: "BellmanComplete", *, discount: float, reward_scale: float) -> None:
        self.recipe, self.discount, self.reward_scale = recipe, discount, reward_scale
        # As many iterates as it takes until discount^count is 5 %.
        self.reach = min(500, math.ceil(3.0 / max(1.0 - discount, 1e-3)))
        self.multiplier = 0.0

    def __call__(self, moments: TorchMoments, m: Tensor, rho: Tensor) -> tuple[Tensor, Terms]:
        """The loss at these moments, M and rho, and its terms by name."""
        recipe = self.recipe
        complete = completeness_loss(moments, m, self.discount, metric=recipe.metric, ridge=recipe.ridge)
        reward = reward_loss(moments, rho) / self.reward_scale
        terms: Terms = {"completeness": complete.detach(), "reward": reward.detach()}
        loss = recipe.reward_weight * reward
        if recipe.value_weight > 0.0:
            directions = iterates(m, rho, moments.sigma, self.reach)
            value = value_loss(moments, m, directions, self.discount) / self.reward_scale
            terms["value_residual"] = value.detach()
            # An incomplete step is paid at every step of the horizon, so completeness gains on the value's
            # own residuals with the horizon's square.
            near = 1.0 - training_discount(self.discount) ** 2
            loss, complete = near * (loss + recipe.value_weight * value), complete / near
        assert recipe.completeness_weight is not None
        loss = loss + recipe.completeness_weight * complete
        if recipe.design is not None:
            loss = loss + self._design(recipe.design, moments.sigma, terms)
        terms["loss"] = loss.detach()
        terms["feature_norm"] = torch.trace(moments.sigma.detach()).sqrt()
        return loss, terms

    def _design(self, design: "Design", sigma: Tensor, terms: Terms) -> Tensor:
        """-lambda R; with a constraint mu (1 - R_E / (beta/2)), or mu (log(beta/2) - R_D / d).

        mu grows while the constraint is broken.
        """
        value = design_value(sigma, design.kind, design.jitter)
        terms["design"] = value.detach()
        if design.constraint is None:
            return -design.weight * value
        half = design.constraint / 2.0
        short = 1.0 - value / half if design.kind == "E" else math.log(half) - value / len(sigma)
        self.multiplier = max(0.0, self.multiplier + design.multiplier_lr * float(short.detach()))
        terms["multiplier"] = self.multiplier
        return self.multiplier * short


def regularised(sigma: Tensor, ridge: float) -> Tensor:
    """sigma + ridge tr(sigma)/d I."""
    dim = len(sigma)
    return sigma + ridge * torch.trace(sigma) / dim * torch.eye(dim, dtype=sigma.dtype, device=sigma.device)


def residual(moments: TorchMoments, m: Tensor, discount: float) -> Tensor:
    """R_M of each policy, shape (policies, d, d)."""
    cross = discount * (m @ moments.c)
    return (
        m @ moments.sigma @ m.transpose(1, 2)
        - cross
        - cross.transpose(1, 2)
        + discount**2 * moments.sigma_next
    )


def completeness_loss(
    moments: TorchMoments, m: Tensor, discount: float, *, metric: Metric, ridge: float
) -> Tensor:
    """Mean over policies of tr R_M (plain) or tr(sigma^{-1} R_M) / d (whitened).

    Args:
        moments: of the batch.
        m: one matrix per policy, shape (policies, d, d).
        discount: of the values.
        metric: how the residual is measured.
        ridge: of the whitening, in units of tr(sigma) / d.
    """
    error = residual(moments, m, discount)
    if metric == "whitened":
        factor = torch.linalg.cholesky(regularised(moments.sigma, ridge))
        error = torch.cholesky_solve(error.transpose(0, 1).flatten(1), factor)
        dim, policies = len(moments.b), len(m)
        error = error.view(dim, policies, dim).transpose(0, 1) / dim
    return error.diagonal(dim1=1, dim2=2).sum(dim=1).mean()


def reward_loss(moments: TorchMoments, rho: Tensor) -> Tensor:
    """E (rho^T phi - r)^2."""
    return rho @ moments.sigma @ rho - 2.0 * (rho @ moments.b) + moments.reward_square


def iterates(m: Tensor, rho: Tensor, sigma: Tensor, count: int) -> Tensor:
    """Directions w_0 = rho, w_{k+1} = M^T w_k of LSPE's steps, (policies, count, d), without gradient.

    A direction never grows in L2(nu): where M expands, which the true backup cannot, it is scaled back.
    """
    # Hundreds of small products one after the other: plain BLAS calls, where torch would spend its time on
    # dispatch.
    step, weight = m.detach().cpu().numpy().transpose(0, 2, 1), sigma.detach().cpu().numpy()
    first = rho.detach().expand(len(m), -1).cpu().numpy()
    out = np.empty((len(m), count, weight.shape[0]), dtype=weight.dtype)
    # A direction that has decayed to rounding may have a square below zero; features that run away overflow,
    # and are seen later.
    with np.errstate(over="ignore", invalid="ignore"):
        for policy, matrix in enumerate(np.ascontiguousarray(step)):
            current, rows = first[policy], out[policy]
            size = max(float(current @ (weight @ current)), 0.0)
            rows[0] = current
            for k in range(1, count):
                current = matrix @ current
                grown = max(float(current @ (weight @ current)), 0.0)
                if grown > size:
                    current = current * math.sqrt(size / grown)
                else:
                    size = grown
                rows[k] = current
    return torch.from_numpy(out).to(m.device)


def value_loss(moments: TorchMoments, m: Tensor, directions: Tensor, discount: float) -> Tensor:
    """Mean over policies of sum_k E (w_{k+1}^T phi - discount w_k^T phi')^2, M and phi' held still.

    Args:
        moments: with `c_still`.
        m: one matrix per policy, shape (policies, d, d).
        directions: from `iterates`, shape (policies, count, d).
        discount: of the values.
    """
    ahead = directions @ m.detach()
    own = (ahead @ moments.sigma * ahead).sum(dim=(1, 2))
    cross = ((ahead @ moments.c_still) * directions).sum(dim=(1, 2))
    target = ((directions @ moments.sigma_next.detach()) * directions).sum(dim=(1, 2))
    return (own - 2.0 * discount * cross + discount**2 * target).mean()


def log_det(sigma: Tensor, jitter: float) -> Tensor:
    """D-design: log det(sigma + jitter I)."""
    dim = len(sigma)
    factor = torch.linalg.cholesky(sigma + jitter * torch.eye(dim, dtype=sigma.dtype, device=sigma.device))
    total: Tensor = 2.0 * factor.diagonal().log().sum()
    return total


def smallest_eigenvalue(sigma: Tensor) -> Tensor:
    """E-design: lambda_min(sigma); its gradient is v v^T of the bottom eigenvector."""
    with torch.no_grad():
        bottom: Tensor = torch.linalg.eigh(sigma)[1][:, 0]
    return bottom @ sigma @ bottom


def design_value(sigma: Tensor, kind: DesignKind, jitter: float) -> Tensor:
    """R(phi): log det for "D", lambda_min for "E"; larger is better covered."""
    return log_det(sigma, jitter) if kind == "D" else smallest_eigenvalue(sigma)


def closed_form(moments: TorchMoments, discount: float, ridge: float) -> tuple[Tensor, Tensor]:
    """M (policies, d, d) and rho (d,) by ridge regression; differentiable."""
    factor = torch.linalg.cholesky(regularised(moments.sigma, ridge))
    policies, dim, _ = moments.c.shape
    targets = torch.cat([discount * moments.c.transpose(0, 1).flatten(1), moments.b[:, None]], dim=1)
    solved = torch.cholesky_solve(targets, factor)
    return solved[:, :-1].view(dim, policies, dim).permute(1, 2, 0), solved[:, -1]
