"""What the programs with texts of tensors share."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import torch

from tests.oracle import t


@dataclasses.dataclass
class Held:
    text: str
    number: Any = 0


class Pair(NamedTuple):
    text: str
    number: int


def mask(k: int) -> tuple[torch.Tensor, torch.Tensor]:
    return t(k), torch.arange(4) < k + 1
