"""Calls that stop in a debugger, as ``breakpoint()`` does: it looks at the frame that calls it, and steps on from there."""

from __future__ import annotations

import builtins
import functools
import os
import sys
from collections.abc import Callable, Mapping
from types import FunctionType, MappingProxyType
from typing import Any

from fineline.bytecode.place import calling
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import GraphBreak
from fineline.frames.stub_frames import is_own
from fineline.tables import attributes
from fineline.tracing.interp import Interp
from fineline.tracing.tracebacks import variables_of

# Where debuggers come from, and what their functions are called that stop in them.
_PACKAGES = frozenset({"pdb", "bdb", "ipdb", "IPython", "pudb", "debugpy", "pydevd", "remote_pdb", "web_pdb", "rpdb", "celery", "_pytest"})
NAMES = frozenset({"set_trace", "Pdb.set_trace", "Bdb.set_trace", "pytestPDB.set_trace", "breakpoint", "settrace", "embed"})
STOPS = "FL449"


def stops(fn: FunctionType) -> bool:
    """Returns whether ``fn`` stops in a debugger."""
    module = fn.__module__ or ""
    return fn.__qualname__ in NAMES and (module.partition(".")[0] in _PACKAGES or module == "torch.distributed")


def stop(interp: Interp, f: Frame, fn: Any, args: list, kwargs: dict | None, then: Any, data: Any) -> Frame | None:
    """Calls what stops in a debugger; while a call is captured, that is no call to capture any more."""
    if not interp.trace.active:
        return interp.finish(f, call_from(f, fn, tuple(args), kwargs), then, data)
    if fn in HANDLERS and sys.breakpointhook is sys.__breakpointhook__ and os.environ.get("PYTHONBREAKPOINT") == "0":
        raise GraphBreak(fn, tuple(args), kwargs, "FL411", "breakpoint(), which PYTHONBREAKPOINT turns off").to(then, data)
    name = "breakpoint" if fn in HANDLERS else f"{fn.__module__}.{fn.__qualname__}"
    raise GraphBreak(fn, tuple(args), kwargs, STOPS, f"{name}() stops in a debugger").to(then, data)


def call_from(f: Frame | None, fn: Callable, args: tuple, kwargs: dict | None) -> Any:
    """Calls ``fn`` from a frame that shows the variables of ``f``, and has the callers of ``f`` behind it."""
    # No frame of Python's own between: who asks for its caller gets the user's.
    call: Callable = functools.partial(fn, *args, **(kwargs or {})) if args or kwargs else fn
    while f is not None:
        if not is_own(f.info.code):
            variables = variables_of(f)
            at = max(f.ip - 1, 0)
            code = calling(call, f.info.code, f.info.position_at(f.info.offsets[at]), f.info.lines[at], tuple(variables))
            call = functools.partial(FunctionType(code, f.globals), *variables.values())
        f = f.back
    return call()


HANDLERS: Mapping[Any, Callable] = MappingProxyType(dict.fromkeys(attributes(builtins, "breakpoint"), stop))
