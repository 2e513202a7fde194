"""A batch through the networks, in chunks, and its moments."""

from dataclasses import dataclass

from torch import Tensor

from bcrl.representations.batches import Batch
from bcrl.representations.bellman_complete.moments import TorchMoments, moments_of
from bcrl.representations.fitted import FeatureNet


def policy_features(net: FeatureNet, z: Tensor, actions: Tensor, weights: Tensor) -> Tensor:
    """phi(s, pi) = sum_k w_k phi(s, a_k), shape (n, d)."""
    n, k, _ = actions.shape
    if k == 1:
        return net(z, actions[:, 0])  # type: ignore[no-any-return]
    features = net(z.repeat_interleave(k, dim=0), actions.flatten(0, 1)).view(n, k, -1)
    averaged: Tensor = (features * weights.to(features.dtype)[:, :, None]).sum(dim=1)
    return averaged


@dataclass(eq=False)
class Seen:
    """A chunk of the batch through the networks; `guess` is g(s, a), where the double-sampling correction is on."""

    z: Tensor
    actions: Tensor
    phi: Tensor
    ahead: list[Tensor]
    rewards: Tensor
    guess: list[Tensor] | None = None

    def moments(self, *, still: bool) -> TorchMoments:
        return moments_of(self.phi, self.ahead, self.rewards, self.guess, still=still)


def merged(parts: list[TorchMoments], chunks: list[Batch]) -> TorchMoments:
    """The whole batch's means from the chunks'."""
    if len(parts) == 1:
        return parts[0]
    count = sum(len(chunk) for chunk in chunks)
    scaled = [part.scaled(len(chunk) / count) for part, chunk in zip(parts, chunks, strict=True)]
    return sum(scaled[1:], start=scaled[0])
