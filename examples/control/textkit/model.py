"""A language model of one layer."""

from __future__ import annotations

import torch
from torch import nn

from textkit.ops import ClippedGradient  # registers demo_ops, too


def rotate(x: torch.Tensor, base: float) -> torch.Tensor:
    """Rotary positions; for the graph it is one call."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2]).unsqueeze(-1) / base ** (torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=-1)


class Model(nn.Module):
    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.mix = nn.Linear(width, width)
        self.out = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = torch.ops.demo_ops.center(self.embed(tokens))
        x = rotate(x, 100.0)
        x = x + torch.tanh(self.mix(x).cumsum(dim=-2))
        return self.out(ClippedGradient.apply(torch.ops.demo_ops.scale(x, 0.5)))
