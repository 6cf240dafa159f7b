"""Marks: what decorators and calls like `disable` said of a function, class or module, kept beside the objects."""

from __future__ import annotations

import functools
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from fineline.kinds import is_a


class Mark(NamedTuple):
    """``verb``: "disable" or "disable_frame"; ``place``: where it was declared; ``target``: what a marked wrapper runs."""

    verb: str
    reason: str
    place: str
    target: Any


class MarkTable:
    """Marks by object identity; an object's mark dies with the object."""

    def __init__(self) -> None:
        self._marks: dict[int, tuple[weakref.ref, Mark]] = {}
        # Whether a class or an object is marked: then a call's first argument matters.
        self.holders = False

    def __bool__(self) -> bool:
        return bool(self._marks)

    def get(self, obj: Any) -> Mark | None:
        entry = self._marks.get(id(obj))
        return entry[1] if entry is not None and entry[0]() is obj else None

    def set(self, obj: Any, mark: Mark) -> None:
        key = id(obj)
        marks = self._marks
        marks[key] = (weakref.ref(obj, lambda _: marks.pop(key, None)), mark)

    def of_holder(self, fn: Any, holder: Any) -> Mark | None:
        """The mark of an object or class that ``fn`` is a method of, when it is called with ``holder`` first."""
        classes = (holder if is_a(holder, type) else type(holder)).__mro__
        for k in classes:
            mark = self.get(k)
            if mark is not None and _defines(k.__mro__, fn):
                return mark
        mark = self.get(holder)
        return mark if mark is not None and _defines(classes, fn) else None


MARKS = MarkTable()


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None, wrapping: bool = True) -> Any:
    """Keeps ``fn`` out of captures: it runs in Python, with everything it calls.

    With ``recursive=False`` only its own frame does; what it calls is captured again. A function gives a new callable, the
    original stays as it is; a class or an ``nn.Module`` instance is marked and returned. Signature: ``torch.compiler.disable``'s.
    """
    place = _caller()
    if fn is None:
        return functools.partial(_disable, recursive=recursive, reason=reason, place=place)
    return _disable(fn, recursive=recursive, reason=reason, place=place)


def _disable(fn: Any, *, recursive: bool, reason: str | None, place: str) -> Any:
    verb = "disable" if recursive else "disable_frame"
    if is_a(fn, (staticmethod, classmethod)):
        return type(fn)(_disable(fn.__func__, recursive=recursive, reason=reason, place=place))
    if is_a(fn, (type, nn.Module)):
        mark = Mark(verb, reason or "", place, None)
        MARKS.holders = True
        MARKS.set(fn, mark)
        for member in vars(fn).values() if is_a(fn, type) else ():
            # A static method is called without its class.
            if is_a(member, staticmethod) and is_a(member.__func__, types.FunctionType):
                MARKS.set(member.__func__, mark)
        return fn
    if not callable(fn):
        raise TypeError(f"disable() takes a callable, not a {type(fn).__name__}")

    @functools.wraps(fn)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    MARKS.set(disabled, Mark(verb, reason or "", place, fn))
    return disabled


def _defines(classes: tuple[type, ...], fn: Any) -> bool:
    """Whether one of these classes has ``fn`` for a method, class method or property."""
    name = getattr(fn, "__name__", "")
    for k in classes:
        found = k.__dict__.get(name)
        if found is fn or any(getattr(found, part, None) is fn for part in ("__func__", "fget", "fset")):
            return True
    return False


def _caller() -> str:
    frame = sys._getframe(2)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def graph_break(msg: str | None = None) -> None:
    """One graph break here, at any depth of a captured call; nothing outside of one."""


def is_compiling() -> bool:
    """True in code that fineline or ``torch.export`` captures, and in what replays a capture."""
    return torch.compiler.is_exporting()


def is_dynamo_compiling() -> bool:
    """True in code that fineline captures, and in what replays a capture."""
    return False


def torch_mark(fn: Any) -> str | None:
    """What PyTorch's own marks say of a function: "disable", "wrapped" (compiled: run the original through), or None."""
    d = getattr(fn, "__dict__", None)
    if not d:
        return None
    if fn.__module__ != "torch._compile" and getattr(getattr(fn, "__code__", None), "co_qualname", "") == "_disable_dynamo.<locals>.inner":
        return "disable"
    if d.get("_torchdynamo_disable"):
        return "disable"
    if "_torchdynamo_orig_callable" in d:
        return "wrapped"
    return None


# Functions of torch._dynamo that captured code calls, by name: fineline never imports that package.
DYNAMO_NAMES: dict[str, str] = {
    "graph_break": "graph_break",
    "is_compiling": "true",
    "is_dynamo_compiling": "true",
    "mark_dynamic": "nothing",
    "maybe_mark_dynamic": "nothing",
    "mark_static": "nothing",
    "mark_unbacked": "nothing",
    "mark_static_address": "nothing",
    "assume_constant_result": "identity",
    "_disallow_in_graph_helper": "identity",
    "patched_init": "patched_init",
}

Handler = Callable[..., Any]
