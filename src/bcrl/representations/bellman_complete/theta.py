"""The inner problem as the paper has it: M and rho kept in Theta, and stepped by gradients.

The default solves for M and rho in closed form (`closed_form` in objective.py) and bounds neither.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bcrl.representations.bellman_complete.objective import TorchMoments, completeness_loss, reward_loss

if TYPE_CHECKING:
    from bcrl.representations.bellman_complete.recipe import Bounds


def clip_singular_values(m: Tensor, bound: float) -> Tensor:
    """The nearest matrices with ||M||_2 <= bound, in every unitarily invariant norm."""
    if float(torch.linalg.matrix_norm(m, ord="fro", dim=(1, 2)).max()) <= bound:
        return m
    left, values, right = torch.linalg.svd(m, full_matrices=False)
    clipped: Tensor = (left * values.clamp_max(bound)[:, None, :]) @ right
    return clipped


def shrink_to_ball(rho: Tensor, radius: float) -> Tensor:
    """rho, scaled down to length `radius` if it is longer."""
    length = torch.linalg.vector_norm(rho)
    return rho * (radius / length) if float(length) > radius else rho


def constrained(m: Tensor, rho: Tensor, bounds: "Bounds") -> tuple[Tensor, Tensor]:
    """M and rho brought back into Theta."""
    if bounds.m is not None:
        m = clip_singular_values(m.detach(), bounds.m)
    if bounds.rho is not None:
        rho = shrink_to_ball(rho.detach(), bounds.rho)
    return m, rho


class GradientInner:
    """M and rho as parameters with an Adam of their own, stepped on the plain objective."""

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
        """One step of M and rho, both from the old values, then back into Theta."""
        fixed = TorchMoments(*[part.detach() for part in moments.parts])
        loss = completeness_loss(fixed, self.m, discount, metric="plain", ridge=0.0)
        loss = loss + reward_weight * reward_loss(fixed, self.rho)
        self.optimiser.zero_grad()
        torch.autograd.backward(loss)
        self.optimiser.step()
        with torch.no_grad():
            m, rho = constrained(self.m, self.rho, bounds)
            self.m.copy_(m)
            self.rho.copy_(rho)

    def state(self) -> dict[str, object]:
        return {"m": self.m.detach(), "rho": self.rho.detach(), "optimiser": self.optimiser.state_dict()}

    def restore(self, state: dict[str, object]) -> None:
        with torch.no_grad():
            self.m.copy_(state["m"])  # type: ignore[arg-type]
            self.rho.copy_(state["rho"])  # type: ignore[arg-type]
        self.optimiser.load_state_dict(state["optimiser"])  # type: ignore[arg-type]
