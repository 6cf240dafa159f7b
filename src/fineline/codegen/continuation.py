"""The driver of calls with graph breaks: makes the eager call at the end of each segment, and runs the segment after it.

A segment's program returns before the eager call is made, so that no frame of it holds a tensor that the user's code has dropped.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from fineline.bytecode.asynchronous import from_outside
from fineline.errors import InternalError
from fineline.exception_slots import TRACEBACK
from fineline.kinds import is_a
from fineline.tracing.tracebacks import without_own_frames


class Continuation:
    """The rest of a call after a segment: ``through``, which makes the eager call at the graph break, and ``go_on``, the dispatcher after it.

    A segment that does not end the call returns a pair: its continuation, and a list of the live values. If there is a ``through``, the
    last item of the list is the tuple of its arguments; the result of the eager call replaces this item. If the eager call raises and
    there is a ``go_on_raised``, that dispatcher is called, with the exception instead of the result. The list is emptied when it is used.
    """

    __slots__ = ("go_on", "go_on_raised", "through")

    def __init__(self, go_on: Callable, through: Callable | None = None, go_on_raised: Callable | None = None) -> None:
        self.go_on, self.through, self.go_on_raised = go_on, through, go_on_raised

    def with_calls(self, make: Callable[..., Any]) -> Continuation:
        """Returns one whose eager call ``make(through, *args)`` makes."""
        through = functools.partial(make, self.through) if self.through is not None else None
        return Continuation(self.go_on, through, self.go_on_raised)


def is_continued(out: Any) -> bool:
    """Returns whether the result of a segment is a continuation, and not the call's result."""
    return type(out) is tuple and len(out) == 2 and type(out[0]) is Continuation


def run_on(out: Any) -> Any:
    """Runs the rest of a call after the segment that has returned ``out``, segment by segment, and returns its result.

    If each segment called the next one, a loop in the user's code would overflow the stack.
    """
    live: list
    continuation, live = out
    under_way = live  # noqa: F841  (identifies this call; soon empty)
    try:
        while True:
            go_on, through = continuation.go_on, continuation.through
            if through is not None:
                try:
                    live.append(through(*live.pop()))
                except BaseException as raised:
                    go_on = continuation.go_on_raised
                    if go_on is None:
                        raise
                    _take_off_own_frames(raised)
                    live.append(raised)
            out = go_on(*live)
            live.clear()
            # The test of ``is_continued``, without a call.
            if type(out) is not tuple or len(out) != 2 or type(out[0]) is not Continuation:
                return out
            continuation, live = out
    except BaseException as e:
        # The caller may hold the list, and its values may refer to this frame.
        live.clear()
        _take_off_own_frames(e)
        raise


def with_keywords(through: Callable, keywords: dict[str, Any], /, *call: Any) -> Any:
    """Makes an eager call that has keyword arguments."""
    return through(*call, **keywords)


class RunningCall:
    """Identifies a call after its first graph break, by a list that each call makes: objects for the same call are equal."""

    __slots__ = ("_own",)

    def __init__(self, own: list) -> None:
        self._own = own

    def __eq__(self, other: object) -> bool:
        return type(other) is RunningCall and other._own is self._own

    def __hash__(self) -> int:
        return id(self._own)


def running_call() -> RunningCall | None:
    """Returns the identification of the current call if it is past its first graph break; None before."""
    f: FrameType | None = sys._getframe(1)
    while f is not None and f.f_code is not run_on.__code__:
        f = f.f_back
    return None if f is None else RunningCall(f.f_locals["under_way"])


def _take_off_own_frames(e: BaseException) -> None:
    """Removes fineline's frames from a traceback; the region does it later for errors from outside, which only the traceback reveals."""
    if not is_a(e, InternalError) and not from_outside(e):
        TRACEBACK.__set__(e, without_own_frames(TRACEBACK.__get__(e)))
