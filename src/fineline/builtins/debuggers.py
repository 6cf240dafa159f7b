"""Calls that stop in a debugger, such as ``breakpoint()``: the debugger inspects the calling frame and steps on from there."""

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
from fineline.frames.stub_frames import is_own
from fineline.tables import attributes
from fineline.tracing.interp import Call, Handler
from fineline.tracing.tracebacks import variables_of

# The packages of debuggers, and the names of their functions that stop.
_PACKAGES = frozenset({"pdb", "bdb", "ipdb", "IPython", "pudb", "debugpy", "pydevd", "remote_pdb", "web_pdb", "rpdb", "celery", "_pytest"})
NAMES = frozenset({"set_trace", "Pdb.set_trace", "Bdb.set_trace", "pytestPDB.set_trace", "breakpoint", "settrace", "embed"})
STOPS = "FL449"


def stops(fn: FunctionType) -> bool:
    """Returns whether ``fn`` stops in a debugger."""
    module = fn.__module__ or ""
    return fn.__qualname__ in NAMES and (module.partition(".")[0] in _PACKAGES or module == "torch.distributed")


def stop(call: Call) -> Frame | None:
    """Makes a call that stops in a debugger. In a capture it raises the graph break `STOPS`, which ends the capture of the whole call."""
    if not call.trace.active:
        return call.finish(call_from(call.frame, call.fn, tuple(call.args), call.kwargs))
    if call.fn in HANDLERS and sys.breakpointhook is sys.__breakpointhook__ and os.environ.get("PYTHONBREAKPOINT") == "0":
        raise call.graph_break("FL411", "breakpoint(), which PYTHONBREAKPOINT turns off")
    name = "breakpoint" if call.fn in HANDLERS else f"{call.fn.__module__}.{call.fn.__qualname__}"
    raise call.graph_break(STOPS, f"{name}() stops in a debugger")


def call_from(f: Frame | None, fn: Callable, args: tuple, kwargs: dict | None) -> Any:
    """Calls ``fn`` from a Python frame that has the variables of ``f``, and whose callers stand for the callers of ``f``."""
    # A partial adds no Python frame: a function that looks for its caller finds the stand-in of the user's frame.
    call: Callable = functools.partial(fn, *args, **(kwargs or {})) if args or kwargs else fn
    while f is not None:
        if not is_own(f.info.code):
            variables = variables_of(f)
            at = max(f.ip - 1, 0)
            code = calling(call, f.info.code, f.info.position_at(f.info.offsets[at]), f.info.lines[at], tuple(variables))
            call = functools.partial(FunctionType(code, f.globals), *variables.values())
        f = f.back
    return call()


HANDLERS: Mapping[Any, Handler] = MappingProxyType(dict.fromkeys(attributes(builtins, "breakpoint"), stop))
