"""The one stream of events that explain, logs and errors are views of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    """Something that a capture met or did.

    ``kind``: "graph" (a graph went to the backend), "break" (a border), "recompile" (a call that no program fitted),
    "eager" (a stretch that runs in Python), "program" (a segment was kept), "limit", "raised".
    """

    kind: str
    id: str
    reason: str
    file: str = ""
    line: int = 0
    rule: str = ""
    detail: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}" if self.file else ""

    def __str__(self) -> str:
        place = f" at {self.where}" if self.file else ""
        return f"{self.kind} {self.id}{place}: {self.reason}"
