"""Tracebacks of exceptions that leave a region: the user's frames, and none of the interpreter's."""

from __future__ import annotations

from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any

from fineline.capture.places import is_own

# How many exceptions are remembered at once, and how many frames of one are shown at each end.
_EXCEPTIONS, _ENDS = 32, 60

Entry = tuple[CodeType, int, dict]


class Traces:
    """The interpreted frames that each exception has passed, innermost first."""

    def __init__(self) -> None:
        self._passed: dict[int, tuple[BaseException, TracebackType | None, list[Entry]]] = {}

    def note(self, e: BaseException, frame: Any) -> None:
        """``e`` reaches or passes an interpreted frame."""
        known = self._passed.get(id(e))
        if known is None:
            if len(self._passed) >= _EXCEPTIONS:
                del self._passed[next(iter(self._passed))]
            known = self._passed[id(e)] = (e, without_own_frames(e.__traceback__), [])
        if not is_own(frame.info.code):
            known[2].append((frame.info.code, frame.line, frame.globals))

    def caught(self, e: BaseException, frame: Any) -> None:
        """``e`` is handled in ``frame``: code that looks finds a traceback that begins there, with no frame of fineline's."""
        inner = without_own_frames(e.__traceback__)
        e.__traceback__ = (
            inner
            if is_own(frame.info.code)
            else TracebackType(inner, _frame_of(frame.info.code, frame.line, frame.globals), -1, frame.line)
        )

    def clear(self) -> None:
        self._passed.clear()

    def write(self, e: BaseException) -> None:
        """Gives ``e``, and the exceptions that it names, tracebacks of the user's frames."""
        todo: list[BaseException | None] = [e]
        while todo:
            known = self._passed.pop(id(todo[-1]), None)
            e_ = todo.pop()
            if known is None or e_ is None:
                continue
            _, inner, entries = known
            if len(entries) > 2 * _ENDS:
                entries = entries[:_ENDS] + entries[-_ENDS:]
            tb = inner
            for code, line, globals_ in entries:
                tb = TracebackType(tb, _frame_of(code, line, globals_), -1, line)
            e_.__traceback__ = tb
            todo += [e_.__cause__, e_.__context__]
        self._passed.clear()


def without_own_frames(tb: TracebackType | None) -> TracebackType | None:
    """``tb`` from the first frame on that is not fineline's."""
    while tb is not None and is_own(tb.tb_frame.f_code):
        tb = tb.tb_next
    return tb


def raised_inside(e: BaseException) -> bool:
    """Whether ``e`` was raised by Python code of fineline's (or by C called from there)."""
    tb = e.__traceback__
    while tb is not None and tb.tb_next is not None:
        tb = tb.tb_next
    return tb is not None and is_own(tb.tb_frame.f_code)


def _stub():  # type: ignore[no-untyped-def]
    yield


def _frame_of(code: CodeType, line: int, globals_: dict) -> FrameType:
    """A frame that says it runs ``code``: a generator's that never starts, as no other frame is behind that."""
    stub = _stub.__code__.replace(co_filename=code.co_filename, co_name=code.co_name, co_qualname=code.co_qualname, co_firstlineno=line)
    frame: FrameType = FunctionType(stub, globals_)().gi_frame
    return frame
