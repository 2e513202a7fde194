"""The double-sampling correction for random transitions.

With one next state per (s, a), E||M phi - discount phi'||^2 exceeds the loss that is meant by discount^2 E
Var(phi' | s, a), which rewards features for being constant. Chang et al. (2022) subtract min over g in G of
E||g - discount phi'||^2. Here:

    E <M phi - discount g, M phi + discount g - 2 discount phi'>,     g(s, a) ~ E[phi' | s, a],

the same number without the two large terms that cancel: its pull on phi' vanishes where M phi = discount g.
In moments it replaces E[phi' phi'^T] by E[phi' g^T + g phi'^T - g g^T].

g = M phi / discount + h with a network h that starts at zero: an untrained g gives a loss of zero, not a
negative one, and h only has to find what the linear prediction misses. Held-out transitions show whether it
does: if g explains no more of phi' there than M phi, there is nothing to correct, or g underfits.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bcrl.networks import HeadNet
from bcrl.training import average_gradients


class Correction:
    """h of every target policy, with its optimiser; it takes several steps before each step of phi.

    Args:
        like: phi's head, whose shape h shares.
        dim: number of features, the constant included.
        policies: number of them.
        steps: of h before each step of phi.
        lr: of h.
        generator: draws the weights.
        device: where they live.
    """

    def __init__(
        self,
        like: HeadNet,
        dim: int,
        policies: int,
        *,
        steps: int,
        lr: float,
        generator: torch.Generator,
        device: torch.device,
    ) -> None:
        self.steps = steps
        heads = [
            HeadNet(
                like.z_dim,
                like.action_dim,
                dim,
                hidden=like.hidden,
                layers=like.layers,
                activation=like.activation,
                generator=generator,
            )
            for _ in range(policies)
        ]
        for head in heads:
            last = head.mlp[-1]
            assert isinstance(last, nn.Linear)
            nn.init.zeros_(last.weight)
        self.heads = nn.ModuleList(heads).to(device)
        self.optimiser = torch.optim.Adam(self.heads.parameters(), lr=lr)

    def predict(
        self, z: Tensor, actions: Tensor, linear: Sequence[Tensor], ahead: Sequence[Tensor], scale: Tensor
    ) -> list[Tensor]:
        """g_k(s, a) of every policy, without gradient, after this batch's steps of h.

        Args:
            z: encodings of s, (n, z_dim).
            actions: logged, (n, action_dim).
            linear: M_k phi / discount, each (n, d).
            ahead: phi(s', pi_k), each (n, d).
            scale: mean square of each feature, (d,): h's error is measured relative to it.
        """
        targets = [(a - line).detach() for a, line in zip(ahead, linear, strict=True)]
        with torch.enable_grad():
            for _ in range(self.steps):
                losses = [
                    ((head(z, actions) - target).square() / scale).mean()
                    for head, target in zip(self.heads, targets, strict=True)
                ]
                self.optimiser.zero_grad()
                torch.autograd.backward(torch.stack(losses).sum())
                average_gradients(self.heads)
                self.optimiser.step()
        with torch.no_grad():
            return [line + head(z, actions) for head, line in zip(self.heads, linear, strict=True)]

    def shares(
        self, z: Tensor, actions: Tensor, linear: Sequence[Tensor], ahead: Sequence[Tensor], scale: Tensor
    ) -> dict[str, float]:
        """Shares of the variance of phi' that g and M phi explain, averaged over policies; see `predict`."""
        found = []
        with torch.no_grad():
            for head, line, target in zip(self.heads, linear, ahead, strict=True):
                total = ((target - target.mean(dim=0)).square() / scale).mean().clamp_min(1e-12)
                guesses = (line + head(z, actions), line)
                errors = [((target - guess).square() / scale).mean() / total for guess in guesses]
                found.append(1.0 - torch.stack(errors))
        g, alone = torch.stack(found).mean(dim=0).tolist()
        return {"held_out/g_share": g, "held_out/linear_share": alone}

    def state(self) -> dict[str, Any]:
        return {"heads": self.heads.state_dict(), "optimiser": self.optimiser.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        self.heads.load_state_dict(state["heads"])
        self.optimiser.load_state_dict(state["optimiser"])


def warn_if_underfit(curves: Mapping[str, Sequence[float]]) -> None:
    """Warn if g, over the last quarter of training, explained no more of phi' than M phi."""
    if "held_out/g_share" not in curves:
        return
    last = -(-len(curves["held_out/g_share"]) // 4)
    g, alone = (sum(curves[f"held_out/{name}"][-last:]) / last for name in ("g_share", "linear_share"))
    if g <= alone:
        warnings.warn(
            f"double_sampling: g explains {g:.1%} of the held-out variance of phi', M phi alone {alone:.1%}. "
            "Unless the features are complete already, g underfits and the noise of transitions stays: "
            "raise DoubleSampling's steps or lr.",
            stacklevel=4,
        )
