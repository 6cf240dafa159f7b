"""Functions of libraries that are not captured as they stand: some do something else while they are compiled, some fill a cache of their own."""

from __future__ import annotations

import logging
import os
import pickle
import re
import types
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import GraphBreak
from fineline.objects import c_calls
from fineline.tracing.interp import Interp

_CAPTURING = "transformers.utils.output_capturing"


def set_collector(self: Any, value: Any) -> tuple:
    """Sets a collector as the library does in compiled code, but returns the previous one, which the library's code forgets."""
    before = self.global_var, self.compiling
    self.global_var, self.compiling = value, True
    return before


def reset_collector(self: Any, token: Any) -> None:
    if type(token) is tuple:
        self.global_var, self.compiling = token
    elif self.compiling or token is None:
        self.global_var, self.compiling = None, False
    else:
        self.context_var.reset(token)


_STAND_INS: Mapping[tuple[str, str], Callable] = MappingProxyType(
    {
        (_CAPTURING, "CompileableContextVar.set"): set_collector,
        (_CAPTURING, "CompileableContextVar.reset"): reset_collector,
    }
)
NAMES = frozenset(name for _, name in _STAND_INS)


def stand_in(fn: types.FunctionType) -> Callable | None:
    """Returns what is captured in the place of ``fn``."""
    return _STAND_INS.get((fn.__module__ or "", fn.__qualname__)) if fn.__qualname__ in NAMES else None


def _pattern(interp: Interp, f: Frame, fn: Any, args: list, kwargs: dict | None, then: Any, data: Any) -> Frame | None:
    """Handles the compilation of a pattern in ``re``, which happens once: its result for a text is like a constant."""
    pattern, flags = [*args, *(kwargs or {}).values()]
    if not interp.trace.active:
        return interp.finish(f, interp.native(fn, (pattern, flags), None), then, data)
    if type(pattern) not in (str, bytes) or type(flags) not in (int, re.RegexFlag) or flags & re.DEBUG:
        return interp.push_function(f, fn, args, kwargs, then, data)
    interp.trace.settle(pattern)
    interp.trace.settle(flags)
    compiled = interp.native(fn, (pattern, flags), None)
    interp.trace.pin(compiled, "pattern")
    return interp.finish(f, compiled, then, data)


def _replaced(interp: Interp, f: Frame, fn: Any, args: list, kwargs: dict | None, then: Any, data: Any) -> Frame | None:
    """Handles ``Pattern.sub`` and ``subn``, which run no user code if the replacement is a text."""
    values = (*args, *(kwargs or {}).values())
    if interp.trace.active and not (type(values[0]) is re.Pattern and all([type(v) in (str, bytes, int) for v in values[1:]])):
        raise GraphBreak(fn, tuple(args), kwargs, "FL412", f"{fn.__qualname__} calls a function for each match").to(then, data)
    for v in values if interp.trace.active else ():
        interp.trace.settle(v)
    return interp.finish(f, interp.native(fn, tuple(args), kwargs), then, data)


def _path(interp: Interp, f: Frame, fn: Any, args: list, kwargs: dict | None, then: Any, data: Any) -> Frame | None:
    """Handles ``os.fspath``: returns a text itself, and breaks the graph for an object, whose method it calls."""
    if interp.trace.active and type(args[0]) not in (str, bytes):
        raise GraphBreak(fn, tuple(args), kwargs, "FL412", f"os.fspath asks a {type(args[0]).__name__}").to(then, data)
    return interp.finish(f, interp.native(fn, tuple(args), kwargs), then, data)


def _enabled(interp: Interp, f: Frame, fn: Any, args: list, kwargs: dict | None, then: Any, data: Any) -> Frame | None:
    """Handles ``Logger.isEnabledFor``: makes the logger cache its answer now, because it takes a lock to store the first one."""
    if interp.trace.active and len(args) == 2 and type(args[0]) in (logging.Logger, logging.RootLogger) and type(args[1]) is int:
        fn(*args)
    return interp.push_function(f, fn, args, kwargs, then, data)


def _pickled(interp: Interp, f: Frame, fn: Any, args: list, kwargs: dict | None, then: Any, data: Any) -> Frame | None:
    """Handles ``pickle.dumps`` of plain values, such as the arguments in a cache's key (gpytorch): it depends only on their values."""
    values = [*args, *(kwargs or {}).values()]
    if interp.trace.active and not _told_by_equality(values, []):
        raise GraphBreak(fn, tuple(args), kwargs, "FL410", "a pickle of more than plain values, each there once").to(then, data)
    return c_calls.call(interp, f, fn, fn, args, kwargs, then, data)


def _told_by_equality(values: Any, seen: list) -> bool:
    """Returns whether equal ``values`` have equal pickles. A pickle writes an object once, so that no two parts may be equal or the same."""
    for v in values:
        t = type(v)
        if t in (list, dict):
            if any([v is other for other in seen]):
                return False
            seen.append(v)
        elif t not in (str, bytes, tuple, int, float, bool, type(None)):
            return False
        parts = [x for item in v.items() for x in item] if t is dict else v if t in (list, tuple) else ()
        if not _told_by_equality(parts, seen):
            return False
        if t in (str, bytes, tuple) and v != ():
            if any([type(other) is t and v == other for other in seen]):
                return False
            seen.append(v)
    return True


HANDLERS: Mapping[Any, Callable] = MappingProxyType(
    {
        pickle.dumps: _pickled,
        re._compile: _pattern,  # type: ignore[attr-defined]
        re.Pattern.sub: _replaced,
        re.Pattern.subn: _replaced,
        os.fspath: _path,
        logging.Logger.isEnabledFor: _enabled,
    }
)
