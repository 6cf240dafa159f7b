"""Calls that C refuses or warns of, for their arguments or for what a special method gave: the function itself says so, in its own words."""

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
    """Has C refuse the call."""
    return call.run_eagerly("FL437", f"{describe(call.fn)}() called with arguments that it does not take")


def counted(fn: Any, handler: Handler) -> Handler:
    """Wraps the ``handler`` of ``fn``, if it takes only so many arguments: for others, C raises."""
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
    """Returns whether an unbound method of C's is called with an object of its class, or with one of the interpreter's for it."""
    return bool(args) and (is_a(args[0], (method.__objclass__, InterpretedGenerator, Lazy)) or type(args[0]) in SYMBOLIC)


def takes(fn: Any, n: int, kwargs: dict | None) -> bool:
    """Returns whether a function in Python that stands for one of C's, or a class of such, can be called so."""
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
    """Checks the result of a special method as C does: refuses a wrong type, and warns for a subclass at each call."""
    if type(value) is not (key if is_a(key, type) else int) and type(value) not in SYMBOLIC:
        name = type(obj).__name__
        raise GraphBreak(_answered, (key, name, value), None, "FL437", f"{spec_of(key).methods[0]} of {name} gives a {type(value).__name__}")
    return interp.finish(f, value, then)


def _answered(key: Any, name: str, value: Any) -> Any:
    return key(type(name, (), {spec_of(key).methods[0]: lambda self: value})())
