"""Exceptions in captured code: the handled one, contexts, and tracebacks that show the user's frames and none of the interpreter's."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from types import CellType, CodeType, FrameType, FunctionType, TracebackType
from typing import Any, NamedTuple

from torch import Tensor

from fineline.bytecode.code import NOWHERE
from fineline.bytecode.place import position_of, standing_for, with_parameters
from fineline.exception_slots import CONTEXT, TRACEBACK
from fineline.frames.frame import NULL, Frame
from fineline.frames.stub_frames import Place, is_own, is_stand_in
from fineline.identity import AddressSet
from fineline.kinds import is_a
from fineline.stacks import PROGRAM
from fineline.tracing.mutation_log import EMPTY, contents
from fineline.tracing.segment_trace import SegmentTrace

# The number of frames that a long traceback shows at each end.
_ENDS = 60
# Instructions that give a variable another value, or none.
_CHANGING = frozenset({"STORE_FAST", "DELETE_FAST", "STORE_DEREF", "DELETE_DEREF"})


class Traces:
    """The interpreted frames that the current exception has passed, innermost first."""

    def __init__(self) -> None:
        self._error: BaseException | None = None
        self._inner: TracebackType | None = None
        self._passed: list[tuple[Any, int]] = []
        # The code of traceback frames, by code info, instruction and variable names. The cache saves the slow search for source positions.
        self._stubs: dict[tuple[Any, int, tuple[str, ...]], CodeType] = {}

    def note(self, e: BaseException, frame: Any) -> None:
        """Notes that ``e`` reaches or passes an interpreted frame."""
        if self._error is not e:
            self._error, self._inner, self._passed = e, _after_the_call(TRACEBACK.__get__(e)), []
        if not is_own(frame.info.code):
            self._passed.append((frame, max(frame.ip - 1, 0)))

    def write(self, e: BaseException, trace: SegmentTrace) -> None:
        """Sets the traceback of ``e``, which is handled or leaves the region, to the user's frames.

        The frames show their variables with the current values. An exception that existed before the segment gets the frames again at each run
        of the program.
        """
        if self._error is not e:
            return
        tb, passed = self._inner, self._passed
        if len(passed) > 2 * _ENDS:
            passed = passed[:_ENDS] + passed[-_ENDS:]
        for frame, at in passed:
            info, line = frame.info, frame.info.lines[at]
            variables = variables_of(frame)
            names = tuple(variables)
            stub = self._stubs.get((info, at, names))
            if stub is None:
                stub = self._stubs[info, at, names] = standing_for(_stub.__code__, info.code, info.position_at(info.offsets[at]), line, names)
            tb = TracebackType(tb, _made(stub, frame.globals, variables.values()), 0, line)
            if trace.active and tb.tb_next is self._inner and e in trace.sources:
                trace.mutations.note_trace(e, trace.sources[e], self._inner, tb)
        TRACEBACK.__set__(e, tb)
        self._error, self._inner, self._passed = None, None, []


def without_own_frames(tb: TracebackType | None) -> TracebackType | None:
    """Returns ``tb`` without the frames of fineline at its start."""
    while tb is not None and is_own(tb.tb_frame.f_code):
        tb = tb.tb_next
    return tb


def _after_the_call(tb: TracebackType | None) -> TracebackType | None:
    """Returns ``tb`` without the frames of fineline, of programs and of stand-ins for the user's at its start: these are added again."""
    while tb is not None and (is_own(tb.tb_frame.f_code) or tb.tb_frame.f_code.co_filename.startswith(PROGRAM)):
        tb = tb.tb_next
    return tb


def raised_inside(e: BaseException) -> bool:
    """Returns whether fineline's Python code, or C called from there, raised ``e``."""
    tb = TRACEBACK.__get__(e)
    while tb is not None and tb.tb_next is not None:
        tb = tb.tb_next
    return tb is not None and is_own(tb.tb_frame.f_code)


def entries_after_segment(e: BaseException) -> TracebackType | None:
    """Returns the traceback entries of ``e`` from before the segment, which follow those that the segment's frames add."""
    return _after_the_call(TRACEBACK.__get__(e))


def drop_variables(error: BaseException | None, frame: Frame | None) -> None:
    """Updates traceback entries that keep tensors alive which the frames have dropped while they handle ``error``.

    In Python, a running frame is its own traceback entry: the entry holds, and shows, the variables that the frame has now.
    """
    seen = AddressSet()
    while error is not None and error not in seen:
        seen.add(error)
        tb = TRACEBACK.__get__(error)
        if tb is not None:
            running = running_frame(tb.tb_frame, frame)
            if running is not None and _holds_dropped(tb.tb_frame, running):
                TRACEBACK.__set__(error, TracebackType(tb.tb_next, entry_of_now(tb.tb_frame, running), 0, tb.tb_lineno))
        # It may have been raised while another exception was being handled.
        error = CONTEXT.__get__(error)


def _holds_dropped(entry: FrameType, running: Frame) -> bool:
    """Returns whether an entry holds tensors that its running frame no longer has."""
    now = variables_at(entry, running)
    return any([is_a(value, Tensor) and now.get(name) is not value for name, value in _shown(entry).items()])


def running_frame(entry: FrameType, frame: Frame | None) -> Frame | None:
    """Returns the running frame, ``frame`` or a caller, that the frame of a traceback entry stands for; None if there is none."""
    code = entry.f_code
    if code.co_code != _stub.__code__.co_code:
        return None
    while frame is not None and (frame.file, frame.info.code.co_qualname) != (code.co_filename, code.co_qualname):
        frame = frame.back
    return frame


def handling_frame(entry: FrameType, frame: Frame | None, error: BaseException | None) -> Frame | None:
    """Returns the running frame that handles ``error`` and that ``entry``, the first in its traceback, stands for; None if it cannot be told.

    Entries and frames are matched by name: of a recursive function with several running calls, each could be the one.
    """
    tb = None if error is None else TRACEBACK.__get__(error)
    if tb is None or tb.tb_frame is not entry:
        return None
    running = running_frame(entry, frame)
    return None if running is None or running_frame(entry, running.back) is not None else running


def variables_at(entry: FrameType, running: Frame) -> dict[str, Any]:
    """Returns the variables that a running frame has now. ``entry``: the frame of its traceback entry, which has those of the raise."""
    now, changed = variables_of(running), _changed_in_handlers(running)
    # A dead variable that no handler changes still has its value in Python.
    return {name: value for name, value in _shown(entry).items() if name not in changed and name not in now} | now


def entry_of_now(entry: FrameType, running: Frame) -> FrameType:
    """Returns a frame for a traceback entry with the variables that the running frame has now."""
    now = variables_at(entry, running)
    return _made(with_parameters(entry.f_code, tuple(now)), entry.f_globals, now.values())


def _shown(entry: FrameType) -> dict[str, Any]:
    # Without ``f_locals``: that dict would stay, and keep the values alive. The frame that never started has a value for each parameter.
    names = entry.f_code.co_varnames
    return dict(zip(names, gc.get_referents(entry)[-len(names) :], strict=False)) if names else {}


def _changed_in_handlers(frame: Frame) -> set[str]:
    """Returns the variables that a frame may have assigned or deleted since it began to handle an exception."""
    info = frame.info
    names = [name for name, _ in info.instructions]
    after = info.instructions[names.index("PUSH_EXC_INFO") :] if "PUSH_EXC_INFO" in names else info.instructions
    return {info.slots[arg] for name, arg in after if name in _CHANGING}


def traceback_of(e: BaseException, trace: SegmentTrace) -> TracebackType | None:
    """Returns the traceback of ``e``; guards it if the segment read ``e`` from a source and has not written the traceback."""
    tb: TracebackType | None = TRACEBACK.__get__(e)
    src = trace.sources.get(e)
    if src is not None and trace.active and not trace.mutations.slot_written(e, TRACEBACK):
        trace.load(tb, trace.guards.access(src, "member", TRACEBACK, tb))
    return tb


def variables_of(frame: Frame) -> dict[str, Any]:
    """Returns the variables that have a value in an interpreted frame, as ``f_locals`` shows them."""
    variables: dict[str, Any] = {}
    of_cells = {*frame.info.code.co_cellvars, *frame.info.code.co_freevars}
    for name, value in zip(frame.info.slots, frame.local, strict=False):
        held = contents(value) if type(value) is CellType and name in of_cells else value
        if held is not NULL and held is not EMPTY:
            variables[name] = held
    return variables


class Entry:
    """Makes a copy of one traceback entry, which precedes the entries ``behind`` and holds no variables."""

    __slots__ = ("_code", "_globals", "_line")

    def __init__(self, tb: TracebackType) -> None:
        code, self._line = tb.tb_frame.f_code, tb.tb_lineno
        own = code.co_code == _stub.__code__.co_code
        self._code = with_parameters(code, ()) if own else standing_for(_stub.__code__, code, position_of(code, tb.tb_lasti), self._line)
        self._globals = tb.tb_frame.f_globals

    def __call__(self, behind: TracebackType | None) -> TracebackType:
        return TracebackType(behind, _made(self._code, self._globals, ()), 0, self._line)


def _stub():  # type: ignore[no-untyped-def]
    yield


def _made(stub: CodeType, globals_: dict, variables: Iterable[Any]) -> FrameType:
    """Makes a frame that looks as if it ran the code that ``stub`` replaces. It belongs to a generator that never starts, so it has no caller."""
    made: FrameType = FunctionType(stub, globals_)(*variables).gi_frame
    return made


class Variable(NamedTuple):
    """A user's variable at a graph break: a constant, or the position of its value (or of its cell) among the values that the program passes."""

    name: str
    position: int | None
    value: Any = None
    in_cell: bool = False

    def now(self, shown: tuple[Any, ...]) -> Any:
        """Returns the value; EMPTY if the variable has none."""
        if self.position is None:
            return self.value
        found = shown[self.position]
        return contents(found) if self.in_cell else found


class ShownPlace(Place):
    """Calls functions from a place in a program; if one raises, its traceback entries show the user's variables that the program knows."""

    __slots__ = ("_frames",)

    def __init__(self, place: Place, frames: tuple[tuple[Variable, ...], ...]) -> None:
        """Sets up the place. ``frames``: the variables of each of the user's frames, outermost first."""
        self.outermost = place.outermost
        self._frames = frames

    @property
    def frames(self) -> tuple[tuple[Variable, ...], ...]:
        return self._frames

    def call(self, shown: tuple[Any, ...], fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Calls ``fn``. ``shown``: the values of the variables that are not constants."""
        if not self.outermost:
            return fn(*args, **kwargs)
        stub, inner = self.outermost
        try:
            return stub(fn, args, kwargs, inner)
        except BaseException as e:
            self._show(e, shown)
            raise

    def _show(self, e: BaseException, shown: tuple[Any, ...]) -> None:
        tb, entries = TRACEBACK.__get__(e), []
        while tb is not None and is_own(tb.tb_frame.f_code):
            if is_stand_in(tb.tb_frame.f_code):
                entries.append(tb)
            tb = tb.tb_next
        if len(entries) != len(self._frames):
            return
        for entry, variables in zip(reversed(entries), reversed(self._frames), strict=True):
            values = {variable.name: variable.now(shown) for variable in variables}
            values = {name: value for name, value in values.items() if value is not EMPTY}
            stub = standing_for(_stub.__code__, entry.tb_frame.f_code, NOWHERE, entry.tb_lineno, tuple(values))
            tb = TracebackType(tb, _made(stub, entry.tb_frame.f_globals, values.values()), 0, entry.tb_lineno)
        TRACEBACK.__set__(e, tb)


class ExceptionState:
    """Handles raised exceptions of interpreted frames as CPython does: the handled exception, implicit contexts, tracebacks."""

    __slots__ = ("handled", "traces")

    def __init__(self) -> None:
        # The exception that ``sys.exception()`` returns to the user's code.
        self.handled: BaseException | None = None
        self.traces = Traces()

    def chain(self, e: BaseException, anew: bool) -> None:
        """Sets the implicit context of ``e``, which an instruction raised. ``anew``: a ``raise`` statement did, and replaces an existing context."""
        handled = self.handled
        if handled is None or e is handled or not (anew or CONTEXT.__get__(e) is None):
            return
        link: BaseException = handled
        # The program may have made a cycle.
        seen = AddressSet()
        while (inner := CONTEXT.__get__(link)) is not None and link not in seen:
            seen.add(link)
            if inner is e:
                CONTEXT.__set__(link, None)
                break
            link = inner
        CONTEXT.__set__(e, handled)
