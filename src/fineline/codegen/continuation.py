"""The driver of calls with graph breaks: makes the eager call at the end of each segment, and runs the segment behind it.

A segment's program returns before the eager call is made: no frame of it holds a tensor that the user's code has dropped.
"""

from __future__ import annotations

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
    """How a call goes on behind a segment: the dispatcher there, ``go_on``, and what makes the eager call before that, ``through``.

    A segment that does not end the call gives back a pair: its continuation, and a list of what is alive. If there is a ``through``, the
    list's last item is the tuple of what that is called with; the result of this eager call takes the item's place. If it raises and
    there is a ``go_on_raised``, that dispatcher is called, with the exception in the result's place. The list is emptied as it is used.
    """

    __slots__ = ("go_on", "go_on_raised", "through")

    def __init__(self, go_on: Callable, through: Callable | None = None, go_on_raised: Callable | None = None) -> None:
        self.go_on, self.through, self.go_on_raised = go_on, through, go_on_raised


def goes_on(out: Any) -> bool:
    """Returns whether a segment has given back how the call goes on, and not the call's result."""
    return type(out) is tuple and len(out) == 2 and type(out[0]) is Continuation


def run_on(out: Any) -> Any:
    """Runs the rest of a call behind the segment that has given ``out``, one segment after the other: as calls of each other a loop's would
    overflow the stack.
    """
    live: list
    continuation, live = out
    under_way = live  # noqa: F841  (tells which call this is; soon empty)
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
            # As ``goes_on`` tells, without a call.
            if type(out) is not tuple or len(out) != 2 or type(out[0]) is not Continuation:
                return out
            continuation, live = out
    except BaseException as e:
        # The caller may hold the list, and what is alive may lead here.
        live.clear()
        _take_off_own_frames(e)
        raise


def with_keywords(through: Callable, keywords: dict[str, Any], /, *call: Any) -> Any:
    """Makes an eager call that has keyword arguments."""
    return through(*call, **keywords)


class CallUnderWay:
    """One call behind its first graph break: those of the same call are equal. A list that each call makes tells which it is."""

    __slots__ = ("_own",)

    def __init__(self, own: list) -> None:
        self._own = own

    def __eq__(self, other: object) -> bool:
        return type(other) is CallUnderWay and other._own is self._own

    def __hash__(self) -> int:
        return id(self._own)


def call_under_way() -> CallUnderWay | None:
    """Returns what tells one call from another, behind its first graph break; None before."""
    f: FrameType | None = sys._getframe(1)
    while f is not None and f.f_code is not run_on.__code__:
        f = f.f_back
    return None if f is None else CallUnderWay(f.f_locals["under_way"])


def _take_off_own_frames(e: BaseException) -> None:
    """Not of what comes from outside, as only its traceback tells that: the region puts PyTorch's state back, and takes them off then."""
    if not is_a(e, InternalError) and not from_outside(e):
        TRACEBACK.__set__(e, without_own_frames(TRACEBACK.__get__(e)))
