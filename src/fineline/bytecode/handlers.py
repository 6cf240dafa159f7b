"""Signal handlers while PyTorch's C++ runs Python code of its own, which makes of an exception what it likes.

It may take the exception for a missing overload, put its text into another one, or end the process: where a size is symbolic, and in
AOTAutograd's tracing, an exception that comes out of Python may meet a destructor, which must not raise. So a handler is called when such
code has ended; while a compiler writes code, it is called at once, and what it raises is noted.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
SignalHandler = Callable[[int, FrameType | None], object]
# As numbers: the module around `_signal` makes enumeration members of all that it is asked, which takes longer than a small operator.
_SIGNALS = tuple(map(int, signal.valid_signals()))


class StandIn:
    """Stands in for a handler of the user's, for a while."""

    def __init__(self, handler: SignalHandler) -> None:
        self.handler = handler
        # What the handler has raised, and the calls of it that are yet to be made.
        self.raised: list[BaseException] = []
        self.missed: list[tuple[int, FrameType | None]] = []

    def __call__(self, number: int, frame: FrameType | None) -> object:
        raise NotImplementedError

    def make_up(self) -> None:
        """Makes the calls that have been missed."""
        while self.missed:
            self.handler(*self.missed.pop(0))


class Observer(StandIn):
    """Calls the handler, and notes what it raises."""

    def __call__(self, number: int, frame: FrameType | None) -> object:
        try:
            return self.handler(number, frame)
        except BaseException as e:
            self.raised.append(e)
            raise


class Deferral(StandIn):
    """Has the handler called later."""

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.missed.append((number, frame))


def handled_signals() -> tuple[int, ...]:
    """Returns the signals that have a handler in Python, for the thread that runs these."""
    if threading.get_ident() != threading.main_thread().ident:
        return ()
    return tuple([n for n in _SIGNALS if callable(_signal.getsignal(n))])


def take_away_stand_ins() -> None:
    """Puts the user's handlers back, after an exception from outside may have kept `standing_in` from doing so."""
    for n in handled_signals():
        if isinstance(handler := _signal.getsignal(n), StandIn):
            _signal.signal(n, handler.handler)


def standing_in(kind: type[StandIn], signals: tuple[int, ...], fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns what ``fn(*args)`` does while stand-ins of a ``kind`` hear of ``signals``; raises what a handler has raised meanwhile.

    Inside of a deferral, observers have the handlers called at once; what has been missed so far comes first.
    """
    if not signals or threading.get_ident() != threading.main_thread().ident:
        return fn(*args, **kwargs)
    before: list[tuple[int, SignalHandler]] = [(n, h) for n in signals if callable(h := _signal.getsignal(n))]
    there = [(n, h, kind(h.handler if isinstance(h, Deferral) and kind is Observer else h)) for n, h in before]
    try:
        for n, h, stand_in in there:
            _signal.signal(n, stand_in)
            if isinstance(h, Deferral) and kind is Observer:
                h.make_up()
        result = fn(*args, **kwargs)
    finally:
        for n, h, stand_in in there:
            # A handler may have put another one there.
            if _signal.getsignal(n) is stand_in:
                _signal.signal(n, h)
        for _, _, stand_in in there:
            for error in stand_in.raised:
                raise error
            stand_in.make_up()
    return result
