"""The inner problem as the paper has it: M and rho in Theta = {||M||_2 <= m, ||rho|| <= r}.

The default solves for M and rho in closed form (`closed_form` in objective.py) and bounds neither. With
bounds, `InTheta` finds the minimum over Theta itself. Only there is the gradient of phi, with M and rho held
fixed, that of the bilevel objective (envelope theorem); a closed form clipped to Theta is another point.
`GradientInner` takes gradient steps, and projects.

In the eigenbasis of sigma = V D V^T the loss of M is sum_ij p_i (D_j M_ij^2 - 2 discount c_ji M_ij), p = 1
for the plain metric and 1 / D for the whitened one, and the norms are those of any basis. Alternating
directions (ADMM) splits it: a division for the loss, clipped singular values for the ball. Because the
problem is convex, <G, M> + m ||G||_nuclear, G the gradient, bounds how far the loss is above its minimum.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bcrl.linear.lspe import ball_multiplier
from bcrl.representations.bellman_complete.objective import (
    Metric,
    TorchMoments,
    completeness_loss,
    regularised,
    reward_loss,
)

if TYPE_CHECKING:
    from bcrl.representations.bellman_complete.recipe import Bounds

_ROUNDS, _GAP = 500, 1e-7


def clip_singular_values(m: Tensor, bound: float) -> Tensor:
    """The nearest matrices with ||M||_2 <= bound, in every unitarily invariant norm."""
    if float(torch.linalg.matrix_norm(m, ord="fro", dim=(1, 2)).max()) <= bound:
        return m
    left, values, right = torch.linalg.svd(m, full_matrices=False)
    clipped: Tensor = (left * values.clamp_max(bound)[:, None, :]) @ right
    return clipped


def shrink_to_ball(rho: Tensor, radius: float) -> Tensor:
    """rho, scaled down to length `radius` if it is longer: the nearest point of the ball."""
    length = torch.linalg.vector_norm(rho)
    return rho * (radius / length) if float(length) > radius else rho


class InTheta:
    """The minimum over Theta, started where the last one was found.

    Attributes:
        gap: an upper bound on how far the last M's loss was above the minimum, relative to its target's size.
    """

    def __init__(self, bounds: "Bounds", metric: Metric, ridge: float) -> None:
        self.bounds, self.metric, self.ridge = bounds, metric, ridge
        self.warm: tuple[Tensor, Tensor] | None = None
        self.gap = 0.0

    def solve(self, moments: TorchMoments, discount: float) -> tuple[Tensor, Tensor]:
        """M (policies, d, d) and rho (d,), both without gradient."""
        sigma = regularised(moments.sigma.detach(), max(self.ridge, 1e-12))
        values, vectors = torch.linalg.eigh(sigma)
        b = vectors.T @ moments.b.detach()
        mu = 0.0
        if self.bounds.rho is not None:
            mu = ball_multiplier(b.cpu().numpy(), values.cpu().numpy(), self.bounds.rho)
        pull = discount * (vectors.T @ moments.c.detach() @ vectors).transpose(1, 2)
        m = pull / values
        if self.bounds.m is not None and float(torch.linalg.matrix_norm(m, ord=2).max()) > self.bounds.m:
            m = self._split(values, pull, vectors, self.bounds.m)
        return vectors @ m @ vectors.T, vectors @ (b / (values + mu))

    def _split(self, values: Tensor, pull: Tensor, vectors: Tensor, bound: float) -> Tensor:
        """ADMM in the eigenbasis; the warm start is kept in the features' own basis, which does not turn."""
        weight = torch.ones_like(values) if self.metric == "plain" else 1.0 / values
        curve = weight[:, None] * values
        pulled = weight[:, None] * pull
        step = float((curve.max() * curve.min()).sqrt())
        z, dual = clip_singular_values(pull / values, bound), torch.zeros_like(pull)
        if self.warm is not None:
            z, dual = (vectors.T @ part @ vectors for part in self.warm)
            dual = dual / step
        size = float((pulled * (pull / values)).sum().clamp_min(1e-300))
        for done in range(_ROUNDS):
            m = (pulled + step * (z - dual)) / (curve + step)
            z = clip_singular_values(m + dual, bound)
            dual = dual + m - z
            if done % 5:  # the bound on the gap costs as much as the step
                continue
            slope = 2.0 * (curve * z - pulled)
            above = (slope * z).sum() + bound * torch.linalg.svdvals(slope).sum()
            self.gap = float(above) / size
            if self.gap <= _GAP:
                break
        self.warm = (vectors @ z @ vectors.T, step * (vectors @ dual @ vectors.T))
        return z


class GradientInner:
    """M and rho as parameters, stepped on the plain objective by an Adam of their own.

    With bounds every step is projected onto Theta, and all entries of M share one step length, as do rho's: a
    step of each entry's own length, projected, would come to rest beside the minimum.
    """

    def __init__(
        self, dim: int, policies: int, *, lr: float, generator: torch.Generator, device: torch.device
    ) -> None:
        matrices = [torch.empty(dim, dim) for _ in range(policies)]
        for matrix in matrices:
            torch.nn.init.orthogonal_(matrix, generator=generator)
        row = torch.nn.init.orthogonal_(torch.empty(1, dim), generator=generator)[0]
        self.m = torch.stack(matrices).double().to(device).requires_grad_()
        self.rho = row.double().to(device).requires_grad_()
        self.optimiser = torch.optim.Adam([self.m, self.rho], lr=lr)

    def step(self, moments: TorchMoments, discount: float, reward_weight: float, bounds: "Bounds") -> None:
        """One step of M and rho, both from the old values; with bounds, then the nearest point of Theta."""
        fixed = TorchMoments(*[part.detach() for part in moments.parts])
        loss = completeness_loss(fixed, self.m, discount, metric="plain", ridge=0.0)
        loss = loss + reward_weight * reward_loss(fixed, self.rho)
        self.optimiser.zero_grad()
        torch.autograd.backward(loss)
        self.optimiser.step()
        with torch.no_grad():
            if bounds.m is not None:
                self._share_step(self.m)
                self.m.copy_(clip_singular_values(self.m, bounds.m))
            if bounds.rho is not None:
                self._share_step(self.rho)
                self.rho.copy_(shrink_to_ball(self.rho, bounds.rho))

    def _share_step(self, parameter: Tensor) -> None:
        """One second moment for all entries of a parameter, from Adam's next step on."""
        second = self.optimiser.state[parameter]["exp_avg_sq"]
        second.fill_(float(second.mean()))

    def state(self) -> dict[str, Any]:
        return {"m": self.m.detach(), "rho": self.rho.detach(), "optimiser": self.optimiser.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            self.m.copy_(state["m"])
            self.rho.copy_(state["rho"])
        self.optimiser.load_state_dict(state["optimiser"])
