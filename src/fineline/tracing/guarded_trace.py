"""Two protocols: a segment's trace for functions that add guards to it, and the interpreter that owns a trace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from fineline.guards.source import GuardBuilder, Reader, Source
from fineline.identity import AddressSet, IdentityMap
from fineline.tracing.lessons import Lessons
from fineline.tracing.recreated_classes import SegmentClasses
from fineline.tracing.segment_state import SegmentState


class TraceOwner(Reader, Protocol):
    """An interpreter whose reads a trace records."""

    @property
    def lessons(self) -> Lessons: ...


class GuardedTrace(Protocol):
    """A segment's trace, to which guards are added. Its fields are documented where `SegmentTrace` sets them."""

    guards: GuardBuilder
    sources: IdentityMap[Source]
    made: AddressSet
    classes: SegmentClasses
    state: SegmentState
    symbols: Any

    def load(self, v: Any, src: Source) -> Any: ...
    def load_members(self, v: Any, src: Source, members: Iterable[Any]) -> None: ...
    def adopt(self, v: Any, src: Source) -> None: ...
    def check_type(self, src: Source, t: type) -> None: ...
    def expand(self, obj: Any, deep: bool = False, ordered: bool = True, within: tuple[int, ...] = ()) -> None: ...
