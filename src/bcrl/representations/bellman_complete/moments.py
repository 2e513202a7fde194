"""The second moments that every term of the objective is a function of, as float64 tensors.

    sigma = E[phi phi^T],  b = E[phi r],  and for target policies k  c_k = E[phi phi'_k^T],
    sigma_next_k = E[phi'_k phi'_k^T]

Because the loss sees the batch through these means only, a batch may be encoded in chunks, or by several
processes: sum the moments, differentiate the loss with respect to them once, and push that gradient back
through each part. The result is the gradient of the whole batch, log det included (a mean of per-part log
dets is a different objective).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn


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
        still: also give `c_still`.
    """
    n = len(phi)
    phi, rewards = phi.double(), rewards.double()
    nexts = torch.stack([features.double() for features in next_phi])
    if predicted is None:
        second = nexts.transpose(1, 2) @ nexts
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


def average_gradients(module: nn.Module) -> None:
    """The mean of all processes' gradients; nothing to do with one process."""
    if not dist.is_initialized():
        return
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    pieces = torch.split(flat / dist.get_world_size(), [gradient.numel() for gradient in gradients])
    for gradient, piece in zip(gradients, pieces, strict=True):
        gradient.copy_(piece.view_as(gradient))
