"""Values that vary from call to call and that C reads: decides whether a graph break is better than a program for each value."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Protocol

from torch.utils.hooks import RemovableHandle

from fineline.frames.frame import Frame
from fineline.frames.stub_frames import is_own
from fineline.guards.source import member_text
from fineline.kinds import is_a
from fineline.symbolic.arithmetic import numbers
from fineline.symbolic.floats import hint
from fineline.tracing.identity_guards import VIEWS, shown_by
from fineline.tracing.lessons import IterationSite, Lessons
from fineline.tracing.plain_values import UNSYMBOLIC
from fineline.tracing.segment_trace import SegmentTrace

# Indices and keys often repeat: so many different values get a program each.
FEW_KEYS = 4
# The contents of a container seldom repeat: so many different ones get a program each.
FEW_CONTENTS = 2
# The most numbers and texts of a container that are compared with the contents seen before.
MOST_NUMBERS = 16
DISTINGUISHING = (int, float, str, bytes)


class Mode(Protocol):
    """The part of a backing that these checks need."""

    may_be_symbolic: bool


class Reader(Protocol):
    """The part of an interpreter that these checks need."""

    trace: SegmentTrace
    lessons: Lessons

    @property
    def backing(self) -> Mode: ...
    def may_break(self) -> bool: ...


class VaryingReads:
    """Finds the places where a graph break is better, because the value that is read there differed in each of the earlier calls."""

    __slots__ = ("few_keys", "first_handle", "iteration", "marker", "unsteady")

    def __init__(self) -> None:
        # The iteration of a loop that this capture is for, if each iteration has programs of its own.
        self.iteration: weakref.ref[Any] | None = None
        # The number of different indices or keys at one place that get a program each.
        self.few_keys = FEW_KEYS
        # Handles from this number on are made in this run: another one has other numbers for them.
        self.first_handle = RemovableHandle.next_id
        # Identifies this run among others.
        self.marker = object()
        # The part of each container, by the text of its source, that has varied: its "length", "keys", "numbers" or "texts".
        self.unsteady: Mapping[str, str] = {}

    def numbers_vary(self, reader: Reader, f: Frame, values: Iterable[Any], few: int = 1) -> bool:
        """Returns whether the numbers among ``values``, which C is about to read, had other values here in ``few`` earlier captures.

        Then there would be a program for each value. A graph break is better: the code after it gets the result as a new value.
        """
        found = [hint(n) for v in values for n in numbers(v)] if reader.backing.may_be_symbolic else []
        trace = reader.trace
        if trace.deferred.unsymbolic:
            found += [v for v in values if type(v) in UNSYMBOLIC and v in trace.deferred.numbers]
        return bool(found) and None not in found and self.values_vary(reader, f, found, few)

    def contents_vary(self, reader: Reader, f: Frame, obj: Any) -> bool:
        """Returns whether a container that is about to be read as a whole had other contents here in earlier captures.

        Varying numbers are symbols in a container that the segment has not written to.
        """
        trace = reader.trace
        if not trace.active or not self.unsteady:
            return False
        src, shown = trace.sources.get(obj), False
        if type(obj) in VIEWS:
            held = gc.get_referents(obj)[0]
            src, shown = (trace.sources[held], False) if held in trace.sources else (src, True)
            obj = held
        text = "" if src is None else member_text(shown_by, src.text()) if shown else src.text()
        what = self.unsteady.get(text) if obj not in trace.containers.expanded else None
        written = obj in trace.mutations.written
        if src is None or what is None or (what == "numbers" and not written):
            return False
        before = trace.mutations.before(obj)
        held = (before.keys() if what == "keys" else before.values()) if is_a(before, dict) else before
        found = [v for v in islice(held, MOST_NUMBERS) if type(v) in DISTINGUISHING] if written or what in ("keys", "texts") else []
        return self.values_vary(reader, f, [src.text(), len(before), *found], min(self.few_keys, FEW_CONTENTS))

    def values_vary(self, reader: Reader, f: Frame, found: list, few: int) -> bool:
        """Returns whether ``few`` earlier captures read other values here than those ``found``; notes the values found."""
        return reader.may_break() and reader.lessons.numbers.ask(self._site(f), self.marker, found, few)

    def asks_outside(self, reader: Reader, f: Frame) -> bool:
        """Returns whether code that reads values here runs eagerly, because too many values were read before."""
        outside = reader.lessons.numbers.asked_outside
        return bool(outside) and reader.may_break() and self._site(f) in outside

    def _site(self, f: Frame) -> IterationSite:
        """Returns the instruction in the user's code that reads the values."""
        while f.back is not None and is_own(f.info.code):
            f = f.back
        return self.iteration, f.info.code, f.ip - 1
