"""Why a call fitted no program: the guard that failed, the changes of what it reads, and the line that reads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Self, TypedDict


class Change(NamedTuple):
    """What has changed: the ``aspect`` of a value, such as "sizes", what it was and what it is. "": there is no aspect, or no value before."""

    aspect: str
    before: str
    now: str

    def __str__(self) -> str:
        return f"{self.aspect} " * bool(self.aspect) + f"{self.before} -> " * bool(self.before) + self.now


class MissFacts(TypedDict):
    """A miss, for JSON."""

    value: str
    changes: list[dict[str, str]]
    file: str
    line: int


class Miss(NamedTuple):
    """A call that fitted no program. ``value``: the user's expression on which a guard failed, "" if it was no guard. ``str()`` is a sentence."""

    value: str
    changes: tuple[Change, ...]
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.value}: " * bool(self.value) + listed(self.changes) + f" (read at {self.file}:{self.line})" * bool(self.file)

    @classmethod
    def without_guard(cls, reason: str) -> Self:
        return cls("", (Change("", "", reason),))

    def as_dict(self) -> MissFacts:
        return {"value": self.value, "changes": [change._asdict() for change in self.changes], "file": self.file, "line": self.line}

    @classmethod
    def from_dict(cls, facts: MissFacts) -> Self:
        return cls(facts["value"], tuple([Change(**change) for change in facts["changes"]]), facts["file"], facts["line"])


def listed(changes: Iterable[Change]) -> str:
    return ", ".join(map(str, changes))
