"""Replaces signal handlers while PyTorch's C++ runs Python code, because C++ may mishandle the exceptions of handlers.

It may take an exception for a missing overload, put its text into another one, or end the process: with symbolic sizes, and in
AOTAutograd's tracing, an exception from Python may reach a destructor, which must not raise. Therefore a `Deferral` calls a handler
after such code has ended; while a compiler writes code, an `Observer` calls it at once and records its exception.
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
# As numbers: `signal` converts them to enumeration members at each call, which takes longer than a small operator.
_SIGNALS = tuple(map(int, signal.valid_signals()))


class StandIn:
    """A temporary replacement of a user's signal handler."""

    def __init__(self, handler: SignalHandler) -> None:
        self.handler = handler
        # The exceptions that the handler has raised, and the calls of it that are still to be made.
        self.raised: list[BaseException] = []
        self.missed: list[tuple[int, FrameType | None]] = []

    def __call__(self, number: int, frame: FrameType | None) -> object:
        raise NotImplementedError

    def make_up(self) -> None:
        """Makes the calls of the handler that were deferred."""
        while self.missed:
            self.handler(*self.missed.pop(0))


class Observer(StandIn):
    """Calls the handler at once, and records its exceptions."""

    def __call__(self, number: int, frame: FrameType | None) -> object:
        try:
            return self.handler(number, frame)
        except BaseException as e:
            self.raised.append(e)
            raise


class Deferral(StandIn):
    """Records the calls of the handler, to be made later."""

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.missed.append((number, frame))


def handled_signals() -> tuple[int, ...]:
    """Returns the signals with a handler in Python; none outside of the main thread, which runs the handlers."""
    if threading.get_ident() != threading.main_thread().ident:
        return ()
    return tuple([n for n in _SIGNALS if callable(_signal.getsignal(n))])


def take_away_stand_ins() -> None:
    """Restores the user's handlers, in case an asynchronous exception kept `standing_in` from doing so."""
    for n in handled_signals():
        if isinstance(handler := _signal.getsignal(n), StandIn):
            _signal.signal(n, handler.handler)


def standing_in(kind: type[StandIn], signals: tuple[int, ...], fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns ``fn(*args)``, called while stand-ins of a ``kind`` replace the handlers of ``signals``.

    Afterwards it raises the exceptions of handlers and makes the deferred calls. An observer inside a deferral calls the user's
    handler at once; the calls deferred so far come first.
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
            # A handler may have set another handler.
            if _signal.getsignal(n) is stand_in:
                _signal.signal(n, h)
        for _, _, stand_in in there:
            for error in stand_in.raised:
                raise error
            stand_in.make_up()
    return result
