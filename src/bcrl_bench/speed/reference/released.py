"""One training step the way the authors' released code does it, written from its description (ALGORITHMS.md,
sections 2 and 3).

Per outer step: an epoch of M with phi frozen, then an epoch of phi with M frozen. In both, s and s' are
encoded apart, and the pixel actor encodes s' again to choose a'.

Loss: mse(rho^T phi, r) + mean ||M phi - discount phi'||^2 - weight log det(cov + 1e-8 I).
"""

import torch
from torch import nn


class PixelEncoder(nn.Module):
    """Convolutions 3x3 with 32 channels, the first with stride 2; Linear, LayerNorm, tanh. Input (n, C, H, W)
    bytes.
    """

    def __init__(self, channels, size, conv_layers, feature_dim=50):
        super().__init__()
        layers, side = [], size
        for number in range(conv_layers):
            stride = 2 if number == 0 else 1
            layers += [nn.Conv2d(channels if number == 0 else 32, 32, 3, stride=stride), nn.ReLU()]
            side = (side - 3) // stride + 1
        self.convnet = nn.Sequential(*layers)
        self.trunk = nn.Sequential(
            nn.Linear(32 * side * side, feature_dim), nn.LayerNorm(feature_dim), nn.Tanh()
        )

    def forward(self, pixels):
        return self.trunk(self.convnet(pixels / 255.0 - 0.5).flatten(1))


class Phi(nn.Module):
    """phi(s, a): encoder, then `layers` linear layers with ReLU, the last one too."""

    def __init__(self, channels, size, action_dim, dim, *, conv_layers, layers, feature_dim=50):
        super().__init__()
        self.encoder = PixelEncoder(channels, size, conv_layers, feature_dim)
        widths = [feature_dim + action_dim] + [dim] * layers
        self.mlp = nn.Sequential(
            *[m for i in range(layers) for m in (nn.Linear(widths[i], widths[i + 1]), nn.ReLU())]
        )

    def forward(self, pixels, actions):
        return self.mlp(torch.cat([self.encoder(pixels), actions], dim=1))


class Actor(nn.Module):
    """The evaluated policy from pixels, DrQ-v2's size."""

    def __init__(self, channels, size, action_dim):
        super().__init__()
        self.encoder = PixelEncoder(channels, size, 4)
        self.mlp = nn.Sequential(
            nn.Linear(50, 1024),
            nn.ReLU(),
            nn.Linear(1024, 1024),
            nn.ReLU(),
            nn.Linear(1024, action_dim),
            nn.Tanh(),
        )

    @torch.no_grad()
    def forward(self, pixels):
        return self.mlp(self.encoder(pixels))


def loss(phi, next_phi, m, rho, rewards, discount, design_weight):
    """The released objective on one batch."""
    bellman = (phi @ m.T - discount * next_phi).square().sum(dim=1).mean()
    reward = (phi @ rho - rewards).square().mean()
    total = bellman + reward
    if design_weight > 0.0:
        covariance = phi.T @ phi / len(phi)
        total = total - design_weight * torch.logdet(covariance + 1e-8 * torch.eye(phi.shape[1]))
    return total


class Trainer:
    """phi, M and rho with their two optimisers."""

    def __init__(self, phi, dim, discount=0.99, design_weight=0.0, lr=3e-4):
        self.phi, self.discount, self.design_weight = phi, discount, design_weight
        self.m, self.rho = nn.Parameter(torch.eye(dim)), nn.Parameter(torch.zeros(dim))
        self.inner = torch.optim.Adam([self.m, self.rho], lr=lr)
        self.outer = torch.optim.Adam(phi.parameters(), lr=lr)

    def m_step(self, batch, next_actions):
        with torch.no_grad():
            phi, next_phi = self.phi(batch["s"], batch["a"]), self.phi(batch["s2"], next_actions)
        self.inner.zero_grad()
        loss(phi, next_phi, self.m, self.rho, batch["r"], self.discount, 0.0).backward()
        self.inner.step()

    def phi_step(self, batch, next_actions):
        phi, next_phi = self.phi(batch["s"], batch["a"]), self.phi(batch["s2"], next_actions)
        value = loss(
            phi, next_phi, self.m.detach(), self.rho.detach(), batch["r"], self.discount, self.design_weight
        )
        self.outer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(self.phi.parameters(), 1.0)
        self.outer.step()
        return value
