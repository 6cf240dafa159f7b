"""An interpreted frame, and the stand-in for a generator whose frame the interpreter runs."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterator
from types import BuiltinMethodType, CellType, CodeType, FunctionType, GeneratorType, MethodType, MethodWrapperType
from typing import Any, Final, NamedTuple

import torch

from fineline.bytecode.code import CO_VARARGS, CO_VARKEYWORDS, CodeInfo
from fineline.bytecode.version import CLOSE_RETURNS
from fineline.frames.graph_breaks import Delivery
from fineline.frames.stub_frames import is_own
from fineline.frames.trail import Trail
from fineline.kinds import is_a
from fineline.report.tree import Node


class _Null:
    """The empty stack or variable slot (CPython's NULL)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<NULL>"


NULL = _Null()
_BOUND = (MethodType, BuiltinMethodType, MethodWrapperType)
_TORCH = os.path.join(os.path.dirname(torch.__file__), "")


# The places of the frames of a call, innermost first: code and instruction.
FramePlaces = tuple[tuple[CodeInfo, int], ...]


class BreakCounts(NamedTuple):
    """Counts of the graph breaks in a frame."""

    # The breaks in a row without an operator between them.
    fruitless: int = 0
    # The operators in the frame, or in its callees, before the last break.
    operators: int = 0


NO_BREAKS = BreakCounts()


class UsualExtras:
    """The default extras, which are shared and cannot be set."""

    __slots__ = ()

    breaks: Final = NO_BREAKS
    generator: Final = None
    namespace: Final = None
    node: Final = None
    on_stop: Final = None
    whole: Final = True


USUAL = UsualExtras()


class FrameExtras:
    """The state that few frames have: frames of generators, frames at a graph break, and frames that code inspects."""

    __slots__ = ("breaks", "generator", "namespace", "node", "on_stop", "whole")

    def __init__(self) -> None:
        # The graph breaks in the frame.
        self.breaks = NO_BREAKS
        # The generator whose frame it is, while it runs.
        self.generator: InterpretedGenerator | None = None
        # The dict that ``locals()`` has returned.
        self.namespace: dict[str, Any] | None = None
        # The frame's call in the tree of ``explain``.
        self.node: Node | None = None
        # The delivery of the value of a StopIteration that leaves the frame.
        self.on_stop: Delivery | None = None
        # Whether the frame also has the variables that no instruction reads any more.
        self.whole = True


class Frame:
    """The state of one running function.

    ``then`` receives the return value instead of the caller's stack. ``began``: the number of the graph's operators before the frame started.
    ``covered``: whether a handler is around its call, if that is known.
    """

    __slots__ = (
        "back",
        "began",
        "builtins",
        "covered",
        "extras",
        "function",
        "globals",
        "info",
        "ip",
        "kwnames",
        "local",
        "ops",
        "stack",
        "then",
        "trail",
    )

    def __init__(self, info: CodeInfo, ops: list, globals_: dict, builtins: dict, local: list, back: Frame | None) -> None:
        self.info = info
        self.ops = ops
        self.ip = 0
        self.began = 0
        self.covered: bool | None = None
        self.stack: list[Any] = []
        self.local = local
        self.globals = globals_
        self.builtins = builtins
        self.back = back
        self.then: Delivery | None = None
        self.kwnames: tuple[str, ...] = ()
        self.function: FunctionType | None = None
        self.extras: FrameExtras | UsualExtras = USUAL
        # The origin of the frame for the graph's nodes; None until the first node needs it.
        self.trail: Trail | None = None

    def own_extras(self) -> FrameExtras:
        """Returns the extras of this frame, which may be set."""
        extras = self.extras
        if not is_a(extras, FrameExtras):
            extras = self.extras = FrameExtras()
        return extras

    @property
    def line(self) -> int:
        return self.info.lines[max(self.ip - 1, 0)]

    @property
    def file(self) -> str:
        return self.info.code.co_filename


def covered(f: Frame | None) -> bool:
    """Returns whether an exception raised here would reach a handler in some frame."""
    if f is None:
        return False
    suspends = f.extras.generator is not None
    if f.covered and not suspends:
        return True
    if f.info.handlers and f.info.handler_at(f.ip - 1) is not None:
        return True
    if f.covered is None or suspends:
        f.covered = covered(f.back)
    return f.covered


def stack(f: Frame | None) -> Iterator[Frame]:
    """Yields the frames from ``f`` outwards."""
    while f is not None:
        yield f
        f = f.back


def handled(f: Frame | None) -> bool:
    """Returns whether the user's code may continue after an exception that is raised here.

    A handler that raises it again, such as a ``finally``, is not a reason to break the graph: libraries have these around whole models.
    """
    while f is not None:
        met = f.info.handlers_at(f.ip - 1) if f.info.handlers else ()
        if met and (f.info.code.co_filename.startswith(_TORCH) or is_own(f.info.code)):
            met = ()
        for h in met:
            if not _only_restores(f.stack[h.depth - 1]) if f.info.leaves_with(h) else f.info.swallows(h):
                return True
        f = f.back
    return False


def _only_restores(leave: Any) -> bool:
    """Returns whether an exit method belongs to one of PyTorch's contexts, or to a generator that raises the exception again."""
    context = leave.__self__ if type(leave) in _BOUND else None
    if type(context) is contextlib._GeneratorContextManager:
        gen = context.__dict__.get("gen")
        if type(gen) is not InterpretedGenerator or gen.frame is None:
            return False
        own = gen.gi_code.co_filename.startswith(_TORCH)
        inner = gen.frame.info
        return own or (not any([inner.swallows(h) for h in inner.handlers_at(gen.frame.ip - 1)]) and delegate(gen.frame) is None)
    return type(context) is contextlib.nullcontext or type(context).__module__.partition(".")[0] == "torch"


def delegate(f: Frame) -> Any:
    """Returns the iterator on which a suspended generator's ``yield from`` waits; None if there is none."""
    name, arg = f.info.instructions[f.ip]
    return f.stack[-1] if name == "RESUME" and arg & 3 == 2 else None


class InterpretedGenerator:
    """Stands in for a generator whose frame the interpreter runs.

    ``state`` is "new", "suspended", "running" or "closed". The frame refers to the generator only while it runs, so that a suspended generator
    dies with its last reference, and its ``finally`` clauses run then. ``given``: the Python generator that replaced this one in eager code
    for good; or a weak reference to a Python generator that delegates to this one.
    """

    __slots__ = ("__name__", "__qualname__", "__weakref__", "called_at", "drive", "frame", "gi_code", "given", "handled", "outer", "state")

    def __init__(self, frame: Frame, drive: Callable, called_at: tuple[CodeType, int] | None = None) -> None:
        self.frame: Frame | None = frame
        self.state = "new"
        # The instruction that called its function.
        self.called_at = called_at
        self.handled: BaseException | None = None
        self.outer: BaseException | None = None
        self.drive = drive
        self.given: GeneratorType | weakref.ref[GeneratorType] | None = None
        code = self.gi_code = frame.info.code
        self.__name__ = code.co_name
        self.__qualname__ = code.co_qualname

    def call(self) -> tuple[FunctionType, list, dict[str, Any]] | None:
        """Returns the call that created a generator that has not started: function, arguments, keyword arguments; None for other generators."""
        f = self.frame
        if self.state != "new" or f is None or f.function is None:
            return None
        code = f.info.code
        n, k = code.co_argcount, code.co_kwonlyargcount
        values = [x.cell_contents if type(x) is CellType and f.info.slots[i] in code.co_cellvars else x for i, x in enumerate(f.local)]
        args, at = values[:n], n + k
        kwargs = {code.co_varnames[i]: values[i] for i in range(n, at)}
        if code.co_flags & CO_VARARGS:
            args += values[at]
            at += 1
        if code.co_flags & CO_VARKEYWORDS:
            kwargs.update(values[at])
        return f.function, args, kwargs

    def __iter__(self) -> InterpretedGenerator:
        return self

    def __next__(self) -> Any:
        return self.drive(self, "send", None)

    def send(self, value: Any) -> Any:
        return self.drive(self, "send", value)

    def throw(self, typ: Any, val: Any = None, tb: Any = None) -> Any:
        exc = typ if is_a(typ, BaseException) else (typ(val) if val is not None and not is_a(val, BaseException) else val or typ())
        return self.drive(self, "throw", exc)

    def close(self) -> Any:
        if self.state in ("closed", "new"):
            self.state, self.frame = "closed", None
            return None
        try:
            self.drive(self, "throw", GeneratorExit())
        except (GeneratorExit, StopIteration) as e:
            # Frames in its traceback refer to it: a cycle.
            e.__traceback__ = None
            return e.value if CLOSE_RETURNS and is_a(e, StopIteration) else None
        raise RuntimeError("generator ignored GeneratorExit")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("cannot pickle 'generator' object")

    @property
    def gi_running(self) -> bool:
        return self.state == "running"

    @property
    def gi_suspended(self) -> bool:
        return self.state == "suspended"

    @property
    def gi_frame(self) -> Any:
        # Captured code reads it from a Python generator that replaces this one.
        raise AttributeError("gi_frame")

    @property
    def gi_yieldfrom(self) -> Any:
        f = self.frame
        return None if f is None or self.state != "suspended" else delegate(f)

    def __del__(self) -> None:
        if self.state == "suspended":
            self.drive.__self__.stand_ins.bury(self)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<generator object {self.__qualname__}>"
