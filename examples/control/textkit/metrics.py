"""What is printed of a step."""

from __future__ import annotations

import torch
from torch import nn

import fineline


@fineline.disable(reason="it once called .item()")
def accuracy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (logits.argmax(dim=-1) == targets).float().mean()


class Norms:
    """A hook on a module: keeps the norm of each result."""

    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def __call__(self, module: nn.Module, args: tuple, output: torch.Tensor) -> None:
        self.seen.append(output.detach().norm())

    def mean(self) -> float:
        return torch.stack(self.seen).mean().item()


class Spikes:
    """A hook on a parameter: keeps how many of its gradients are large."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.count = torch.zeros((), dtype=torch.int64)

    def __call__(self, grad: torch.Tensor) -> None:
        self.count += (grad.abs() > self.limit).sum()
