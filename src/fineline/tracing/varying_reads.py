"""Values that vary from call to call and that C asks for: whether a program for each of them would ever come to an end."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Protocol

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

# An index, or a key, often goes round: so many values have a program each.
FEW_KEYS = 4
# What a container holds at a place seldom goes round: a program for each of so many.
FEW_CONTENTS = 2
# So many numbers and texts in a container tell what it holds from what others hold.
MOST_NUMBERS = 16
TOLD_APART = (int, float, str, bytes)


class Mode(Protocol):
    """What is needed of what a capture runs on."""

    may_be_symbolic: bool


class Reader(Protocol):
    """What is needed of the interpreter that is about to read a value."""

    trace: SegmentTrace
    lessons: Lessons

    @property
    def backing(self) -> Mode: ...
    def may_break(self) -> bool: ...


class VaryingReads:
    """Finds the places that are better graph breaks, because what is read there was another value in each of the calls before."""

    __slots__ = ("few_keys", "iteration", "marker", "unsteady")

    def __init__(self) -> None:
        # The iteration of a loop that this run is, if each iteration has programs of its own.
        self.iteration: weakref.ref[Any] | None = None
        # So many indices, or keys, that vary at one place have a program each.
        self.few_keys = FEW_KEYS
        # What tells this run from others.
        self.marker = object()
        # What of containers, by where they come from, has differed from call to call: the "length", or "numbers" or "texts" alone.
        self.unsteady: Mapping[str, str] = {}

    def numbers_vary(self, reader: Reader, f: Frame, values: Iterable[Any], few: int = 1) -> bool:
        """Returns whether the numbers among ``values``, of which C asks the value, had others here when ``few`` earlier calls were captured.

        Then a program for each value would never end, and the place had better be a graph break; what it gives is known behind that.
        """
        found = [hint(n) for v in values for n in numbers(v)] if reader.backing.may_be_symbolic else []
        trace = reader.trace
        if trace.deferred.unsymbolic:
            found += [v for v in values if type(v) in UNSYMBOLIC and v in trace.deferred.numbers]
        return bool(found) and None not in found and self.values_vary(reader, f, found, few)

    def contents_vary(self, reader: Reader, f: Frame, obj: Any) -> bool:
        """Returns whether a container that is about to be read as a whole held others here when earlier calls were captured.

        Numbers that vary are symbols in a container that the segment has not written to.
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
        found = [v for v in islice(held, MOST_NUMBERS) if type(v) in TOLD_APART] if written or what in ("keys", "texts") else []
        return self.values_vary(reader, f, [src.text(), len(before), *found], min(self.few_keys, FEW_CONTENTS))

    def values_vary(self, reader: Reader, f: Frame, found: list, few: int) -> bool:
        """Returns whether other values than those ``found`` were asked for here when ``few`` earlier calls were captured; notes these."""
        return reader.may_break() and reader.lessons.numbers.ask(self._site(f), self.marker, found, few)

    def asks_outside(self, reader: Reader, f: Frame) -> bool:
        """Returns whether what asks for values here runs eagerly, because it has asked for several."""
        outside = reader.lessons.numbers.asked_outside
        return bool(outside) and reader.may_break() and self._site(f) in outside

    def _site(self, f: Frame) -> IterationSite:
        """Returns the instruction of the user's code that asks for values."""
        while f.back is not None and is_own(f.info.code):
            f = f.back
        return self.iteration, f.info.code, f.ip - 1
