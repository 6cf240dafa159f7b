"""Stub frames: they stand for the user's frames on Python's own stack, for functions that look at their callers.

Warnings, log records and ``sys._getframe`` show the file, line, function and globals of the caller; code that ``exec`` compiles has
the future features of the caller's module.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import torch
import torch._higher_order_ops
import torch.nn.attention.flex_attention
import torch.nn.modules.module

from fineline.bytecode.code import CO_FUTURE, CodeInfo
from fineline.stacks import StackPlace, is_library, to_the_user

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
# The files of PyTorch through which a user's call of a control-flow operator passes.
_PASSED_BY = (os.path.dirname(torch._higher_order_ops.__file__), torch.nn.attention.flex_attention.__file__)
# On one line: the code's line number is replaced by the user's.
_CODE = (lambda fn, args, kwargs, inner: inner[0](fn, args, kwargs, inner[1]) if inner else fn(*args, **kwargs) if kwargs else fn(*args)).__code__
_VARIABLES = _CODE.co_varnames


class StackFrame(Protocol):
    """The part of an interpreted frame that locates it in the user's code."""

    info: CodeInfo
    globals: dict[str, Any]

    @property
    def back(self) -> Self | None: ...
    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...


F = TypeVar("F", bound=StackFrame)


def is_own(code: CodeType) -> bool:
    """Returns whether this is fineline's own code."""
    return code.co_filename.startswith(_PACKAGE) or is_stand_in(code)


def is_of_modules(code: CodeType) -> bool:
    """Returns whether this is PyTorch's own code of modules, which keeps the numbers of hooks to itself."""
    return code.co_filename == torch.nn.modules.module.__file__


def frame_of_stub(stand_in: FrameType | None, frame: F | None) -> F | None:
    """Returns the frame, from ``frame`` outwards, for which a frame on Python's stack stands; None if it is not a stub, or has returned."""
    assert stand_in is not None
    code, n = stand_in.f_code, 0
    while stand_in is not None and is_stand_in(stand_in.f_code):
        stand_in, n = stand_in.f_back, n + 1
    users: list[F] = []
    while frame is not None:
        if not is_own(frame.info.code):
            users.append(frame)
        frame = frame.back
    found = users[-n] if 0 < n <= len(users) else None
    return found if found is not None and (found.file, found.info.code.co_qualname) == (code.co_filename, code.co_qualname) else None


def is_stand_in(code: CodeType) -> bool:
    # CPython creates the tuple of names at each read: the comparison of lengths excludes most code first.
    return code.co_nlocals == len(_VARIABLES) and code.co_varnames == _VARIABLES


def user_frame(frame: F | None) -> F | None:
    """Returns the innermost frame of the user's code; None if there is none."""
    while frame is not None and (is_own(frame.info.code) or (frame.back is not None and frame.file.startswith(_PASSED_BY))):
        frame = frame.back
    return frame


def user_stack(frame: StackFrame | None) -> tuple[StackPlace, ...]:
    """Returns the frames of a call, outermost first. If all belong to libraries, those of the user's call come first."""
    stack: list[StackPlace] = []
    while frame is not None:
        if not is_own(frame.info.code):
            stack.append((frame.file, frame.line, frame.info.code.co_qualname))
        frame = frame.back
    if all([is_library(file) for file, _, _ in stack]):
        stack += to_the_user()[::-1]
    return tuple(stack[::-1])


class StubCode(NamedTuple):
    """What the code of a stub has of the user's code. ``future``: the flags of the future features of its module."""

    file: str
    line: int
    future: int
    name: str
    qualname: str

    @classmethod
    def of(cls, stub: FunctionType) -> StubCode:
        code = stub.__code__
        return cls(code.co_filename, code.co_firstlineno, code.co_flags & CO_FUTURE, code.co_name, code.co_qualname)

    def function(self, globals_: dict[str, Any]) -> FunctionType:
        """Returns the stub."""
        code = _CODE.replace(
            co_filename=self.file, co_firstlineno=self.line, co_flags=_CODE.co_flags & ~CO_FUTURE | self.future, co_name=self.name, co_qualname=self.qualname
        )
        return FunctionType(code, globals_)


class Place:
    """Makes calls as if the interpreted frames, down to ``frame``, were on the stack."""

    __slots__ = ("outermost",)

    def __init__(self, frame: StackFrame | None, stubs: dict) -> None:
        chain: Any = ()
        while frame is not None:
            code, line, globals_ = frame.info.code, frame.line, frame.globals
            frame = frame.back
            key = (code, line, id(globals_))
            stub = stubs.get(key)
            if stub is None and not is_own(code):
                stub = stubs[key] = StubCode(code.co_filename, line, code.co_flags & CO_FUTURE, code.co_name, code.co_qualname).function(globals_)
            if stub is not None:
                chain = (stub, chain)
        self.outermost = chain

    @classmethod
    def at(cls, stubs: Sequence[FunctionType]) -> Place:
        """Returns the place of these stubs, the outermost first."""
        place = cls(None, {})
        for stub in reversed(stubs):
            place.outermost = (stub, place.outermost)
        return place

    def stubs(self) -> list[FunctionType]:
        """Returns the stubs, the outermost first."""
        found, chain = [], self.outermost
        while chain:
            stub, chain = chain
            found.append(stub)
        return found

    def __call__(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        if not self.outermost:
            return fn(*args, **kwargs)
        stub, inner = self.outermost
        return stub(fn, args, kwargs, inner)
