"""Calls that C refuses or warns of, for their arguments or for what a special method gave: the function itself says so, in its own words."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

from fineline.bytecode.code import CO_VARARGS, CO_VARKEYWORDS
from fineline.cpython.polyfill_iterators import Lazy
from fineline.frames.frame import Frame, InterpretedGenerator
from fineline.frames.graph_breaks import GraphBreak
from fineline.fx.recorder import NotForGraph
from fineline.kinds import is_a
from fineline.objects.callable_table import spec_of
from fineline.policy.selector import describe
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tracing.interp import Interp

INSTANCE_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)

def refused(interp: Interp, f: Frame, fn: Any, args: list, kwargs: dict | None, then: Any, data: Any) -> Frame | None:
    """Has C refuse the call."""
    if interp.trace.active:
        raise GraphBreak(fn, tuple(args), kwargs, "FL437", f"{describe(fn)}() called with arguments that it does not take").to(then, data)
    found: Frame | None = interp.finish(f, interp.native(fn, tuple(args), kwargs), then, data)
    return found


def counted(fn: Any, handler: Callable) -> Callable:
    """Wraps the ``handler`` of ``fn``: C raises for wrong arguments, and calls that read what no graph can rely on run eagerly."""
    least, most = (*(spec_of(fn).args or (0,)), sys.maxsize)[:2]
    named = most == sys.maxsize

    @functools.wraps(handler)
    def handle(interp: Interp, f: Frame, fn: Any, args: list, kwargs: dict | None, then: Any, data: Any) -> Frame | None:
        answer = handler if least <= len(args) <= most and (named or not kwargs) else refused
        try:
            found: Frame | None = answer(interp, f, fn, args, kwargs, then, data)
        except NotForGraph as e:
            raise GraphBreak(fn, tuple(args), kwargs, "FL413", str(e)).to(then, data) from None
        return found

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


def of_kind(interp: Interp, f: Frame, value: Any, state: tuple) -> Frame | None:
    """Checks the result of a special method as C does: refuses a wrong type, and warns for a subclass at each call."""
    key, obj, then, data = state
    if type(value) is not (key if is_a(key, type) else int) and type(value) not in SYMBOLIC:
        name = type(obj).__name__
        reason = f"{spec_of(key).methods[0]} of {name} gives a {type(value).__name__}"
        raise GraphBreak(_answered, (key, name, value), None, "FL437", reason).to(then, data)
    return interp.finish(f, value, then, data)


def _answered(key: Any, name: str, value: Any) -> Any:
    return key(type(name, (), {spec_of(key).methods[0]: lambda self: value})())
