"""Calls that C refuses or warns of, for their arguments or for what a special method gave: the function itself says so, in its own words."""

from __future__ import annotations

import builtins
import functools
import operator
import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fineline.bytecode.code import CO_VARARGS, CO_VARKEYWORDS
from fineline.cpython.c_callables import PROTOCOL
from fineline.cpython.polyfill_iterators import Lazy
from fineline.frames.frame import Frame, InterpretedGenerator
from fineline.frames.graph_breaks import Delivery, GraphBreak
from fineline.kinds import is_a
from fineline.policy.selector import describe
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tracing.interp import Call, Handler, Interp

INSTANCE_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)

# What the interpreter answers itself -> how many arguments at least, and at most, by position alone; or any number, by name too.
ARITY: Mapping[Any, tuple[int, int]] = MappingProxyType(
    {
        builtins.callable: (1, 1),
        builtins.delattr: (2, 2),
        builtins.dir: (0, 1),
        builtins.getattr: (2, 3),
        builtins.hasattr: (2, 2),
        builtins.hash: (1, 1),
        builtins.id: (1, 1),
        builtins.isinstance: (2, 2),
        builtins.issubclass: (2, 2),
        builtins.iter: (1, 2),
        builtins.next: (1, 2),
        builtins.repr: (1, 1),
        builtins.setattr: (3, 3),
        builtins.super: (0, 2),
        builtins.vars: (0, 1),
        **{t.__init__: (1, sys.maxsize) for t in (list, dict, set, OrderedDict, defaultdict, deque)},
        object.__delattr__: (2, 2),
        object.__getattribute__: (2, 2),
        object.__setattr__: (3, 3),
    }
)


def refused(call: Call) -> Frame | None:
    """Has C refuse the call."""
    return call.run_eagerly("FL437", f"{describe(call.fn)}() called with arguments that it does not take")


def counted(fn: Any, handler: Handler) -> Handler:
    """Wraps the ``handler`` of ``fn``, if it takes only so many arguments: for others, C raises."""
    if fn not in ARITY:
        return handler
    least, most = ARITY[fn]
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


# What a special method has to give, for those that C checks.
KIND: Mapping[Any, type] = MappingProxyType({bytes: bytes, complex: complex, float: float, int: int, operator.index: int})


def of_kind(interp: Interp, f: Frame, value: Any, then: Delivery | None, key: Any, obj: Any) -> Frame | None:
    """Checks the result of a special method as C does: refuses a wrong type, and warns for a subclass at each call."""
    if type(value) is not KIND[key] and type(value) not in SYMBOLIC:
        name = type(obj).__name__
        raise GraphBreak(_answered, (key, name, value), None, "FL437", f"{PROTOCOL[key]} of {name} gives a {type(value).__name__}")
    return interp.finish(f, value, then)


def _answered(key: Any, name: str, value: Any) -> Any:
    return key(type(name, (), {PROTOCOL[key]: lambda self: value})())
