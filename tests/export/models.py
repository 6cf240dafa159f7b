"""Functions, modules and classes that the export tests share; another process imports them too."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from typing import Any

import torch
from torch import nn

Pair = namedtuple("Pair", "a b")


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    mask: torch.Tensor | None = None
    scale: float = 1.0


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin, self.bn = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.unused = nn.Linear(2, 2)
        self.tied = self.lin
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("hidden", torch.ones(4), persistent=False)

    def forward(self, x: torch.Tensor, scale: float = 1.0, *, mask: torch.Tensor | None = None) -> dict[str, Any]:
        self.calls = self.calls + 1
        with torch.no_grad():
            noise = torch.randn(4)
        y = self.bn(self.lin(x)) * scale * self.hidden
        if mask is not None:
            y = y * mask
        return {"y": y, "more": [noise, x], "scale": scale}

    def half(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x) / 2


class Plain:
    """A class of no kind that anybody knows."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x, self.kind = x, Plain


def structures(batch: dict[str, Any], pair: Pair, items: list[Any], data: Batch) -> Any:
    y = batch["x"] * pair.b + items[1]["deep"][0] * data.x * data.scale
    return {"pair": Pair(y, None), "list": [y, (batch["x"], 3, "text")], "data": Batch(y + 1, scale=2.5), "plain": Plain(y)}


def random_and_grad_mode(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        frozen = x * torch.rand(3)
    return frozen, torch.nn.functional.max_pool1d(torch.randn(1, 1, 4), 2) * x.sum()
