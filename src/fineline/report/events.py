"""The one stream of events that explain, logs and errors are views of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    """Something that a capture met or did.

    ``kind``: "graph" (a graph went to the backend), "break" (a border), "recompile" (a call that no program fitted),
    "eager" (a stretch that runs in Python), "skipped" (code that is not looked into, because of a rule or a built-in skip: a disabled
    function or block, a coroutine, a call of a region that captures nothing), "limit", "raised". Only listeners hear
    of "program" (a segment was kept) and "rules" (what a capture's rules did).
    """

    kind: str
    id: str
    reason: str
    file: str = ""
    line: int = 0
    rule: str = ""
    detail: dict[str, Any] = field(default_factory=dict, compare=False)
    # The name of the compiled function.
    region: str = field(default="", compare=False)

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}" if self.file else ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        known = {"kind": self.kind, "id": self.id, "reason": self.reason, "file": self.file, "line": self.line, "rule": self.rule}
        return {**known, **{key: value for key, value in self.detail.items() if key in ("ops", "places")}}

    def __str__(self) -> str:
        place = f" at {self.where}" if self.file else ""
        return f"{self.kind} {self.id}{place}: {self.reason}"


class Listeners:
    """Who hears of each event of each region, when it happens."""

    def __init__(self) -> None:
        self.all: tuple[Callable[[Event], None], ...] = ()

    def tell(self, event: Event) -> None:
        for listener in self.all:
            listener(event)


LISTENERS = Listeners()
