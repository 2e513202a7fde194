"""The regularised Lagrangian of Yang et al. (2020), and the functions that it is a saddle point of.

    L = (1 - g) E[Q(s0, pi)] + lambda + E_D[ zeta(s, a) (alpha_r r + g Q(s', pi) - Q(s, a) - lambda) ]
        + alpha_q E_D[|Q|^p / p] - alpha_zeta E_D[|zeta|^p / p]

A world that ends goes to an absorbing state with reward 0, whose Q and zeta are one number each; without
it the occupancy of a policy that ends early would not add up to 1, which lambda asks for.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bcrl.estimate import short_call
from bcrl.estimators.dice.data import Batch
from bcrl.networks import HeadNet
from bcrl.options import Checked, NotNegative, Positive

_LAST_LAYER = 0.1


class Critics(nn.Module):
    """Q and zeta with their values in the absorbing state, and lambda.

    Args:
        q_net, zeta_net: from (z, action) to one number; their last layers are made small, so that Q starts
            near 0 and zeta near 1.
        scale: of Q, 1 / (1 - g).
        positive: zeta is the square of its network's output.
    """

    def __init__(self, q_net: HeadNet, zeta_net: HeadNet, *, scale: float, positive: bool) -> None:
        super().__init__()
        self.q_net, self.zeta_net = q_net, zeta_net
        self.end_q, self.end_zeta = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.ones(1))
        self.multiplier = nn.Parameter(torch.zeros(1))
        self.scale, self.positive = scale, positive
        with torch.no_grad():
            for net, start in ((q_net, 0.0), (zeta_net, 1.0)):
                last = net.mlp[-1]
                assert isinstance(last, nn.Linear)
                last.weight.mul_(_LAST_LAYER)
                last.bias.fill_(start)

    def q(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Q(s, a), Q(s', pi) and Q(s0, pi), by one pass of the network; terminations are not masked."""
        groups = (batch.following, batch.start)
        sizes = [group.weights.numel() for group in groups]
        z = [group.z.repeat_interleave(group.weights.shape[1], dim=0) for group in groups]
        actions = [group.actions.flatten(0, 1) for group in groups]
        outputs = self.q_net(torch.cat([batch.z, *z]), torch.cat([batch.actions, *actions]))
        q, *parts = torch.split(self.scale * outputs[:, 0], [len(batch.z), *sizes])
        following, start = (
            (part.view(group.weights.shape) * group.weights).sum(dim=1)
            for part, group in zip(parts, groups, strict=True)
        )
        return q, following, start

    def zeta(self, z: Tensor, actions: Tensor) -> Tensor:
        return self._sign(self.zeta_net(z, actions)[:, 0])

    def q_at_end(self) -> Tensor:
        return self.scale * self.end_q

    def zeta_at_end(self) -> Tensor:
        return self._sign(self.end_zeta)

    def _sign(self, x: Tensor) -> Tensor:
        return x.square() if self.positive else x

    def descending(self) -> list[nn.Parameter]:
        return [*self.q_net.parameters(), self.end_q, self.multiplier]

    def ascending(self) -> list[nn.Parameter]:
        return [*self.zeta_net.parameters(), self.end_zeta]


@dataclass(frozen=True)
class Lagrangian(Checked):
    """The switches in which BestDICE, DualDICE and GenDICE differ.

    Attributes:
        alpha_q, alpha_zeta: regularisers of Q and of zeta.
        alpha_r: weight of the reward.
        positive: zeta is the square of the network's output.
        normalised: lambda keeps the mean of zeta at 1.
        power: p of the regularisers |x|^p / p.
    """

    alpha_q: NotNegative = 0.0
    alpha_zeta: NotNegative = 1.0
    alpha_r: NotNegative = 1.0
    positive: bool = True
    normalised: bool = True
    power: Positive = 2.0

    __repr__ = short_call

    def value(
        self, critics: Critics, batch: Batch, *, discount: float, end_weight: float
    ) -> tuple[Tensor, Tensor]:
        """L of a batch, and its zeta without gradient.

        `end_weight` is the weight of the absorbing state beside the mean over the batch.
        """
        q, q_next, q_start = critics.q(batch)
        # `q_at_end` is computed again each time: one shared node would add its gradients in another order.
        q_next = torch.where(batch.terminated, critics.q_at_end(), q_next)
        zeta, zeta_end = critics.zeta(batch.z, batch.actions), critics.zeta_at_end()
        multiplier = critics.multiplier if self.normalised else torch.zeros_like(critics.multiplier)

        residual = self.alpha_r * batch.rewards + discount * q_next - q - multiplier
        residual_end = (discount - 1.0) * critics.q_at_end() - multiplier
        value = (1.0 - discount) * q_start.mean() + multiplier.sum()
        value = value + (zeta * residual).mean() + end_weight * (zeta_end * residual_end).sum()
        if self.alpha_q:
            value = value + self.alpha_q * self._size(q, end_weight, critics.q_at_end())
        if self.alpha_zeta:
            value = value - self.alpha_zeta * self._size(zeta, end_weight, zeta_end)
        return value, zeta.detach()

    def _size(self, x: Tensor, end_weight: float, x_end: Tensor) -> Tensor:
        """E[|x|^p / p], the absorbing state included."""
        p = self.power
        return (x.abs().pow(p).mean() + end_weight * x_end.abs().pow(p).sum()) / p
