"""Puts PyTorch's thread state where the captured code left it, when a compiled graph has not."""

from __future__ import annotations

from typing import Any

import torch

from fineline.guards.facts import AmbientFacts

SETTERS = {"grad_mode": torch._C._set_grad_enabled}


def restore_lines(before: AmbientFacts, after: AmbientFacts, rebuild: Any) -> list[str]:
    """Statements for what differs between a segment's start and its end."""
    lines = []
    for name, a, b in zip(before._fields, before, after, strict=True):
        setter = SETTERS.get(name)
        if a != b and setter is not None:
            lines.append(f"{rebuild.constant(setter, setter.__name__)}({b!r})")
    return lines
