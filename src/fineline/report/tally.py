"""Counts the operators that run under ``explain``, by what became of them: captured, eager by a rule or a graph break, skipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Tally(TorchDispatchMode):
    """Sees every ATen operator that runs. ``where`` tells, for the innermost capture, what an operator that runs now is to it."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.where: list[Callable[[], str]] = []
        # Of the segment that is being captured: whether they become a graph is not known before its end.
        self._open = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kind = self.where[-1]() if self.where else "eager"
        if kind == "captured":
            self._open += 1
        else:
            self.counts[kind] += 1
        return func(*args, **(kwargs or {}))

    def close(self, kind: str) -> None:
        """What has been captured since the last time became ``kind``."""
        self.counts[kind] += self._open
        self._open = 0
