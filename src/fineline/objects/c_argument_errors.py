"""Calls that C rejects or warns about because of their arguments or the result of a special method: C itself writes the message."""

from __future__ import annotations

import functools
import sys
import types
from typing import Any

from fineline.bytecode.code import CO_VARARGS, CO_VARKEYWORDS
from fineline.cpython.polyfill_iterators import Lazy
from fineline.frames.frame import Frame, InterpretedGenerator
from fineline.frames.graph_breaks import Delivery, GraphBreak
from fineline.kinds import is_a
from fineline.objects.callable_table import spec_of
from fineline.policy.selector import describe
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tracing.interp import Call, Handler, Interp

INSTANCE_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)

def refused(call: Call) -> Frame | None:
    """Runs the call eagerly, so that C raises the error."""
    return call.run_eagerly("FL437", f"{describe(call.fn)}() called with arguments that it does not take")


def counted(fn: Any, handler: Handler) -> Handler:
    """Wraps the ``handler`` of ``fn`` if it takes a limited number of arguments: with other numbers, C raises the error."""
    counts = spec_of(fn).args
    if not counts:
        return handler
    least, most = (*counts, sys.maxsize)[:2]
    named = most == sys.maxsize

    @functools.wraps(handler)
    def handle(call: Call) -> Frame | None:
        return handler(call) if least <= len(call.args) <= most and (named or not call.kwargs) else refused(call)

    return handle


def is_of_class(method: Any, args: list) -> bool:
    """Returns whether an unbound C method is called with an object of its class, or with the interpreter's stand-in for one."""
    return bool(args) and (is_a(args[0], (method.__objclass__, InterpretedGenerator, Lazy)) or type(args[0]) in SYMBOLIC)


def takes(fn: Any, n: int, kwargs: dict | None) -> bool:
    """Returns whether a polyfill, which may be a class, can be called with ``n`` positional arguments and these keywords."""
    if is_a(fn, type):
        fn, n = fn.__init__, n + 1  # type: ignore[misc]
    code, defaults, more = fn.__code__, len(fn.__defaults__ or ()), fn.__kwdefaults__ or {}
    by_name = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    given = set(kwargs or ())
    if (n > code.co_argcount and not code.co_flags & CO_VARARGS) or (not given <= set(by_name) and not code.co_flags & CO_VARKEYWORDS):
        return False
    needed = code.co_varnames[n : code.co_argcount - defaults] + tuple(
        [name for name in code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount] if name not in more]
    )
    return given.issuperset(needed) and not given.intersection(code.co_varnames[: min(n, code.co_argcount)])


def of_kind(interp: Interp, f: Frame, value: Any, then: Delivery | None, key: Any, obj: Any) -> Frame | None:
    """Checks the result of a special method as C does: breaks the graph if the type is wrong, or is a subclass, for which C warns."""
    if type(value) is not (key if is_a(key, type) else int) and type(value) not in SYMBOLIC:
        name = type(obj).__name__
        raise GraphBreak(_answered, (key, name, value), None, "FL437", f"{spec_of(key).methods[0]} of {name} gives a {type(value).__name__}")
    return interp.finish(f, value, then)


def _answered(key: Any, name: str, value: Any) -> Any:
    return key(type(name, (), {spec_of(key).methods[0]: lambda self: value})())
