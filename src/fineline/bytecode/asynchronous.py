"""Recognizes asynchronous exceptions: those that a signal handler or another thread raises in the running code.

Such an exception may be of any class, and may occur at any time. CPython raises it between two instructions, or during a
call into C. Only its traceback shows which.
"""

from __future__ import annotations

import dis
import itertools
import os
import signal
import sys
import threading
from contextlib import suppress
from types import CodeType, FrameType, FunctionType, MethodType, TracebackType

from fineline.bytecode.code import CO_VARARGS
from fineline.bytecode.version import CURRENT
from fineline.exception_slots import ARGS, CAUSE, CONTEXT, TRACEBACK
from fineline.identity import AddressSet
from fineline.kinds import is_a

_LOOKS = frozenset(dis.opmap[name] for name in CURRENT.checks)
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
# C raises these without arguments.
_BARE = (StopIteration, StopAsyncIteration, MemoryError)
# FX's interpreter appends this to the text of each exception that it propagates.
_NOTE = "While executing "
# These count as asynchronous wherever they are raised: they ask the process, or its current task, to end.
_ENDING = (KeyboardInterrupt, SystemExit)


def asynchronous(error: BaseException) -> BaseException | None:
    """Returns the asynchronous exception: ``error``, or one that ``error`` replaced; None if the code itself raised it."""
    found: BaseException | None = error
    while found is not None:
        if is_a(found, _ENDING) or from_outside(found):
            return found
        found = _replaced(found)
    return None


def let_pass(error: BaseException) -> None:
    """Raises ``error`` if it is asynchronous, or replaced an exception that is; for code that catches all others."""
    if asynchronous(error) is not None:
        raise error


def clear_frames_of(error: BaseException, files: tuple[str, ...]) -> None:
    """Clears the frames of the traceback in ``files`` (prefixes of names): their variables die now, not with the exception."""
    tb: TracebackType | None = TRACEBACK.__get__(error)
    while tb is not None:
        if tb.tb_frame.f_code.co_filename.startswith(files):
            with suppress(RuntimeError):  # the frame is still running
                tb.tb_frame.clear()
        tb = tb.tb_next


def from_outside(error: BaseException) -> bool:
    """Returns whether the traceback shows that a signal handler or another thread raised ``error``."""
    tb, last, frames = TRACEBACK.__get__(error), None, []
    while tb is not None:
        if not tb.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            frames.append(tb.tb_frame)
        last, tb = tb, tb.tb_next
    if last is None:
        return False
    if frames and threading.get_ident() == threading.main_thread().ident and _by_handler(frames):
        return True
    # ``co_code`` comes last, because each read makes a copy.
    return last.tb_lasti >= 0 and _made_by_class(error) and last.tb_frame.f_code.co_code[last.tb_lasti] in _LOOKS


def _by_handler(frames: list[FrameType]) -> bool:
    """Returns whether one of the frames has ended and is a signal handler's: registered, or called with a number and a frame."""
    able = [f for f in frames if f.f_code.co_argcount + bool(f.f_code.co_flags & CO_VARARGS)]
    if not able:
        return False
    # The stack keeps the frames alive. A set that owns them would be a cycle with this frame.
    running, f = AddressSet(), sys._getframe()
    while f is not None:
        running.add(f)
        f = f.f_back  # type: ignore[assignment]
    ended = [f for f in able if f not in running]
    if not ended:
        return False
    handlers = _handlers()
    return any([f.f_code in handlers or _given_a_signal(f) for f in ended])


def _given_a_signal(frame: FrameType) -> bool:
    code = frame.f_code
    if code.co_argcount < 2 and not code.co_flags & CO_VARARGS:
        return False
    # The frame has ended. ``f_locals`` of a running frame would keep the variables alive until it ends.
    local = frame.f_locals
    names = code.co_varnames[: code.co_argcount]
    given = [local.get(name) for name in names]
    if code.co_flags & CO_VARARGS:
        rest = local.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
        given += rest if type(rest) is tuple else ()
    return any([is_a(n, int) and type(f) is FrameType for n, f in itertools.pairwise(given)])


def _handlers() -> set[CodeType]:
    """Returns the code of all signal handlers that are written in Python."""
    found: list[object] = [signal.getsignal(n) for n in signal.valid_signals()]
    functions = [h.__func__ if type(h) is MethodType else h for h in found]
    return {h.__code__ for h in functions if type(h) is FunctionType}


def _made_by_class(error: BaseException) -> bool:
    """Returns whether ``error`` looks as if its class was called without arguments: another thread can only raise a class.

    An exception that C code raises has a text, or its class is not written in Python.
    """
    if is_a(error, _BARE):
        return False
    args = ARGS.__get__(error)
    bare = not args or (type(args[0]) is str and args[0].startswith(_NOTE))
    if bare:
        return True
    make = next((vars(cls)["__init__"] for cls in type(error).__mro__ if "__init__" in vars(cls)), None)
    return type(make) is FunctionType and _needs_nothing(make)


def _needs_nothing(make: FunctionType) -> bool:
    """Returns whether a method can be called with ``self`` alone, unlike that of a compiler's error that wraps another one."""
    code, named = make.__code__, make.__kwdefaults__ or {}
    keywords = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    return code.co_argcount - len(make.__defaults__ or ()) <= 1 and all([name in named for name in keywords])


def _replaced(error: BaseException) -> BaseException | None:
    """Returns the exception that was being handled when ``error`` was raised, if both passed through one frame; else None."""
    inner = CAUSE.__get__(error) or CONTEXT.__get__(error)
    if inner is None:
        return None
    at: TracebackType | None = TRACEBACK.__get__(inner)
    tb: TracebackType | None = TRACEBACK.__get__(error)
    while tb is not None and at is not None:
        if tb.tb_frame is at.tb_frame:
            return inner
        tb = tb.tb_next
    return None
