"""The recurrent state space model of Dreamer-v2 (Hafner et al., 2021), with discrete latents.

    h_t = GRU(ELU(W [z_{t-1}, a_{t-1}]), h_{t-1})          deterministic
    z_t ~ q(. | h_t, embedding of o_t)   (posterior)        z_t ~ p(. | h_t)   (prior)

z is `stoch` one-hot vectors of `classes` entries; gradients pass straight through the draw. The KL term is
balanced: 0.8 of it trains the prior, 0.2 the posterior; below `free` nats neither is trained.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bcrl.estimators.model_based.parts import Dreamer
from bcrl.networks import linear


@dataclass(frozen=True)
class Latent:
    """A batch of model states: h (n, deter) and z (n, stoch * classes)."""

    h: Tensor
    z: Tensor

    @property
    def features(self) -> Tensor:
        return torch.cat([self.h, self.z], dim=-1)


class RSSM(nn.Module):
    """One step of the model.

    Args:
        embed_dim, action_dim: widths of what comes in.
        sizes: of h, of the layers between, and of z.
        generator: draws the weights; None leaves them to be filled in.
    """

    def __init__(
        self, embed_dim: int, action_dim: int, sizes: Dreamer, generator: torch.Generator | None
    ) -> None:
        super().__init__()
        self.deter, self.stoch, self.classes = sizes.deter, sizes.stoch, sizes.classes
        deter, hidden, flat = sizes.deter, sizes.hidden, sizes.stoch * sizes.classes
        self.before = linear(flat + action_dim, hidden, generator)
        self.gates = linear(hidden + deter, 3 * deter, generator)
        self.norm = nn.LayerNorm(3 * deter)
        self.prior_hidden, self.prior_out = linear(deter, hidden, generator), linear(hidden, flat, generator)
        self.posterior_hidden = linear(deter + embed_dim, hidden, generator)
        self.posterior_out = linear(hidden, flat, generator)

    @property
    def feature_dim(self) -> int:
        return self.deter + self.stoch * self.classes

    def blank(self, count: int) -> Latent:
        """The state before the first observation."""
        like = self.before.weight
        return Latent(like.new_zeros(count, self.deter), like.new_zeros(count, self.stoch * self.classes))

    def prior(self, state: Latent, actions: Tensor) -> tuple[Tensor, Tensor]:
        """h after these actions, and the logits of z before anything is seen, (n, stoch, classes)."""
        inputs = nn.functional.elu(self.before(torch.cat([state.z, actions], dim=1)))
        reset, candidate, update = self.norm(self.gates(torch.cat([inputs, state.h], dim=1))).chunk(3, dim=1)
        keep = torch.sigmoid(update - 1.0)
        h = keep * torch.tanh(torch.sigmoid(reset) * candidate) + (1.0 - keep) * state.h
        return h, self._logits(self.prior_out(nn.functional.elu(self.prior_hidden(h))))

    def posterior(self, h: Tensor, embedding: Tensor) -> Tensor:
        """Logits of z once the observation is seen."""
        inputs = self.posterior_hidden(torch.cat([h, embedding], dim=1))
        return self._logits(self.posterior_out(nn.functional.elu(inputs)))

    def _logits(self, flat: Tensor) -> Tensor:
        return flat.view(-1, self.stoch, self.classes)


def draw(logits: Tensor, generator: torch.Generator) -> Tensor:
    """One-hot draws (n, stoch * classes) whose gradient is that of the probabilities."""
    uniform = torch.rand(logits.shape, generator=generator).to(logits.device).clamp_min(1e-20)
    pick = (logits - (-uniform.log()).log()).argmax(dim=-1)
    sample = nn.functional.one_hot(pick, logits.shape[-1]).to(logits.dtype)
    chances = logits.softmax(dim=-1)
    return (sample + chances - chances.detach()).flatten(1)


def balanced_kl(posterior: Tensor, prior: Tensor, valid: Tensor, *, balance: float, free: float) -> Tensor:
    """The balanced KL term, averaged over valid rows before the free nats are subtracted.

    Args:
        posterior, prior: logits (n, stoch, classes).
        valid: (n,) 1 where the row counts.
        balance: share that trains the prior.
        free: nats that cost nothing.
    """
    left = (_kl(posterior.detach(), prior) * valid).sum() / valid.sum()
    right = (_kl(posterior, prior.detach()) * valid).sum() / valid.sum()
    return balance * left.clamp_min(free) + (1.0 - balance) * right.clamp_min(free)


def _kl(first: Tensor, second: Tensor) -> Tensor:
    log_p, log_q = first.log_softmax(dim=-1), second.log_softmax(dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=(-2, -1))
