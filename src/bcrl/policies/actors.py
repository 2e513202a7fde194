"""The networks of our own actors; their weights travel as safetensors files (actor_file.py).

State actor (SAC; Stable-Baselines3 has the same names), metadata reads="state":

    latent_pi.{0,2}.{weight,bias}  mu.{weight,bias}  log_std.{weight,bias}
    h = relu(latent_pi.2 relu(latent_pi.0 s)),   action = tanh(mu h)
    random: tanh(Normal(mu h, exp(log_std h)))

Pixel actor (DrQ-v2, Yarats et al. 2021), metadata reads="pixels", stack="3",
input uint8 (n, H, W, C * stack):

    encoder.conv.{i}.{weight,bias}  trunk.0.* (Linear)  trunk.1.* (LayerNorm)  policy.{0,2,4}.{weight,bias}
    h = relu of 3x3 convolutions with strides 2, 1, 1, ... on x / 255 - 0.5, flattened channels first,
    action = tanh(policy.4 relu(policy.2 relu(policy.0 tanh(trunk h))))
"""

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Independent, Normal, TanhTransform, TransformedDistribution

LOG_STD_RANGE = (-20.0, 2.0)


class StateActor(nn.Module):
    """A tanh-Gaussian on vectors."""

    def __init__(self, state_dim: int, action_dim: int, hidden: tuple[int, ...] = (256, 256)) -> None:
        super().__init__()
        self.state_dim = state_dim
        widths = (state_dim, *hidden)
        layers = [[nn.Linear(a, b), nn.ReLU()] for a, b in pairwise(widths)]
        self.latent_pi = nn.Sequential(*(part for layer in layers for part in layer))
        self.mu = nn.Linear(widths[-1], action_dim)
        self.log_std = nn.Linear(widths[-1], action_dim)

    def forward(self, states: Tensor) -> Tensor:
        """The deterministic action in [-1, 1]."""
        return torch.tanh(self.mu(self.latent_pi(states)))

    def distribution(self, states: Tensor) -> Distribution:
        """The random action's distribution on [-1, 1]."""
        hidden = self.latent_pi(states)
        scale = self.log_std(hidden).clamp(*LOG_STD_RANGE).exp()
        return TransformedDistribution(
            Independent(Normal(self.mu(hidden), scale), 1), [TanhTransform(cache_size=1)]
        )

    @classmethod
    def shaped_as(cls, tensors: Mapping[str, Tensor]) -> "StateActor":
        """The network that these weights belong to."""
        hidden = layers(tensors, "latent_pi")
        return cls(
            hidden[0].shape[1], tensors["mu.weight"].shape[0], tuple(weight.shape[0] for weight in hidden)
        )


class PixelActor(nn.Module):
    """DrQ-v2's actor on stacked frames, (n, H, W, C * stack) uint8 in, actions in [-1, 1] out.

    Args:
        inputs: channels of a stack of frames, C * stack.
        flat: width of the flattened convolutions, `flat_width(H, W, ...)`.
        action_dim: width of an action.
    """

    def __init__(
        self,
        inputs: int,
        flat: int,
        action_dim: int,
        *,
        feature_dim: int = 50,
        hidden: int = 1024,
        conv_layers: int = 4,
        channels: int = 32,
    ) -> None:
        super().__init__()
        self.inputs, self.flat, self.conv_layers, self.channels = inputs, flat, conv_layers, channels
        self.encoder = nn.ModuleDict({"conv": nn.ModuleList()})
        self.encoder["conv"].extend(  # type: ignore[operator]
            nn.Conv2d(channels if i else inputs, channels, 3, stride=1 if i else 2)
            for i in range(conv_layers)
        )
        self.trunk = nn.Sequential(nn.Linear(flat, feature_dim), nn.LayerNorm(feature_dim), nn.Tanh())
        first, second, last = (
            nn.Linear(feature_dim, hidden),
            nn.Linear(hidden, hidden),
            nn.Linear(hidden, action_dim),
        )
        self.policy = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last, nn.Tanh())

    def forward(self, pixels: Tensor) -> Tensor:
        """The action of each stack of frames."""
        hidden = pixels.permute(0, 3, 1, 2).float() / 255.0 - 0.5
        for conv in self.encoder["conv"]:  # type: ignore[attr-defined]
            hidden = torch.relu(conv(hidden))
        actions: Tensor = self.policy(self.trunk(hidden.flatten(1)))
        return actions

    def fits(self, image: tuple[int, ...]) -> bool:
        """Whether images (H, W, C * stack) can be read."""
        return (
            len(image) == 3
            and image[2] == self.inputs
            and min(image[:2]) > 2 * self.conv_layers
            and flat_width(image[0], image[1], self.conv_layers, self.channels) == self.flat
        )

    @classmethod
    def initialised(
        cls, image: tuple[int, int, int], action_dim: int, generator: torch.Generator, **sizes: int
    ) -> "PixelActor":
        """A network to train: orthogonal weights and zero biases from the
        generator alone; sizes as in the constructor."""
        height, width, inputs = image
        flat = flat_width(height, width, sizes.get("conv_layers", 4), sizes.get("channels", 32))
        with torch.device("meta"):
            actor = cls(inputs, flat, action_dim, **sizes)
        actor.to_empty(device="cpu")
        for part in actor.modules():
            if isinstance(part, nn.Conv2d | nn.Linear):
                gain = nn.init.calculate_gain("relu") if isinstance(part, nn.Conv2d) else 1.0
                nn.init.orthogonal_(part.weight, gain, generator)
                nn.init.zeros_(part.bias)  # type: ignore[arg-type]
            elif isinstance(part, nn.LayerNorm):
                part.reset_parameters()
        return actor

    @classmethod
    def shaped_as(cls, tensors: Mapping[str, Tensor]) -> "PixelActor":
        """The network that these weights belong to."""
        convs = layers(tensors, "encoder.conv")
        feature_dim, flat = tensors["trunk.0.weight"].shape
        return cls(
            convs[0].shape[1],
            flat,
            tensors["policy.4.weight"].shape[0],
            feature_dim=feature_dim,
            hidden=tensors["policy.0.weight"].shape[0],
            conv_layers=len(convs),
            channels=convs[0].shape[0],
        )


def flat_width(height: int, width: int, conv_layers: int = 4, channels: int = 32) -> int:
    """Numbers that the convolutions leave of an image: 3x3 kernels, the first with stride 2."""
    rows, columns = ((size - 3) // 2 + 1 - 2 * (conv_layers - 1) for size in (height, width))
    return channels * rows * columns


def layers(tensors: Mapping[str, Tensor], prefix: str) -> list[Tensor]:
    """Weights under a prefix in the order of their numbers."""
    names = [name for name in tensors if name.startswith(prefix + ".") and name.endswith(".weight")]
    return [tensors[name] for name in sorted(names, key=lambda name: int(name.split(".")[-2]))]
