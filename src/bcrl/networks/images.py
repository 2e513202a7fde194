"""Images moved about at random: DrQ's augmentation (Kostrikov et al. 2020)."""

import torch
from torch import Tensor


def random_shift(pixels: Tensor, pad: int, generator: torch.Generator) -> Tensor:
    """Each image moved by up to `pad` pixels both ways, its border repeated: DrQ's augmentation. (n, H, W, C)
    in and out.
    """
    moves = torch.randint(-pad, pad + 1, (len(pixels), 2), generator=generator)
    return shifted(pixels, moves.to(pixels.device))


def shifted(pixels: Tensor, moves: Tensor) -> Tensor:
    """Image i (n, H, W, C) moved by moves[i] rows and columns, its border repeated."""
    n, height, width, _ = pixels.shape
    rows = (torch.arange(height, device=pixels.device) + moves[:, :1]).clamp(0, height - 1)
    columns = (torch.arange(width, device=pixels.device) + moves[:, 1:]).clamp(0, width - 1)
    image = torch.arange(n, device=pixels.device)
    return pixels[image[:, None, None], rows[:, :, None], columns[:, None, :]]
