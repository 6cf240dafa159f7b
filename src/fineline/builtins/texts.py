"""Handlers of str(), repr(), format(), hash() and id()."""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import Delivery
from fineline.guards.source import LASTING
from fineline.kinds import is_a, is_users_class
from fineline.objects import c_access, c_calls
from fineline.objects.c_access import may_print, prints_address
from fineline.objects.callable_table import spec_of
from fineline.objects.deferred_texts import known_next_time, waiting
from fineline.objects.printing import written_out
from fineline.objects.type_info import type_info
from fineline.symbolic.arithmetic import holds, settle_all
from fineline.tensor_ops.tensors import SIGNS
from fineline.tracing.identity_guards import identify
from fineline.tracing.interp import Call, Handler, Interp
from fineline.tracing.plain_values import SINGLETONS, is_getter, is_value
from fineline.tracing.segment_trace import SegmentTrace


def _text(call: Call) -> Frame | None:
    """Handles str(), repr(), format(), hash() and id() of values; user classes run their own method."""
    interp, trace, fn, args, kwargs = call.interp, call.trace, call.fn, call.args, call.kwargs
    if not trace.active:
        return call.run_natively()
    bare = len(args) == 1 or (len(args) == 2 and type(args[1]) is str and not args[1])
    if bare and fn in (str, format) and not kwargs and args[0] in trace.deferred.texts:
        return call.finish(args[0])
    if args and fn is not id:
        if holds(args[0]) and (text := _waiting(interp, call.frame, fn, args, kwargs)) is not None:
            return call.finish(text)
        if interp.varying.numbers_vary(interp, call.frame, args):
            raise call.graph_break("FL448", f"{fn.__name__}() asks for a number that varies")
        args = call.args = [settle_all(a) for a in args]
        obj = args[0]
        kind: type = type(obj)
        if fn is hash and obj in trace.classes.local:
            raise call.graph_break("FL417", "hash() of a class, or of a member of an enum, that each call makes")
        if is_a(obj, type) and is_users_class(kind):
            for name in ("__format__", "__str__", "__repr__"):
                type_info(trace, kind).look(trace, name)
        if all([c_access.may_compare(trace, a) for a in args]) and (not _hashes_address(obj) if fn is hash else may_print(trace, obj)):
            replaced = len(trace.mutations.replaced)
            c_calls.prepare(call, fn, spec_of(fn), args)
            if len(trace.mutations.replaced) > replaced:
                return _text(call)
            return call.finish(fn(written_out(obj), *args[1:], **(kwargs or {})))
        t = type(obj)
        if is_users_class(t) and not is_a(obj, Tensor) and interp.type_of(obj) is t:
            info = type_info(trace, t)
            if fn is format and bare and not kwargs and info.look(trace, "__format__")[1] is object.__format__:
                return _text(call.of(builtins.str, [obj]))
            names = {str: ("__str__", "__repr__"), repr: ("__repr__",), format: ("__format__",), hash: ("__hash__",)}.get(fn, ())
            for name in names:
                method = info.look(trace, name)[1]
                if is_a(method, types.FunctionType):
                    given = [obj, *(args[1:] or [""])] if fn is format else list(args)
                    return call.instead(method, given, kwargs, _checked, fn)
                if name != names[-1] and method is not object.__str__:
                    break
        if bare and fn is not hash and not kwargs and (printed := _printed_by_c(trace, fn, obj)) is not None:
            return call.finish(printed)
    if fn is id and len(args) == 1 and not kwargs and (type(args[0]) in SINGLETONS or _lasts(trace, args[0])):
        if type(args[0]) in SINGLETONS:
            trace.deferred.settle(args[0])
        else:
            identify(trace, args[0])
        return call.finish(id(args[0]))
    if fn in SIGNS and args and is_a(args[0], Tensor):
        interp.tensors.sign(interp, fn, tuple(args))
    if (text := _waiting(interp, call.frame, fn, args, kwargs)) is not None:
        return call.finish(text)
    for a in args:
        if a in interp.trace.deferred.texts:
            known_next_time(interp, interp.trace.deferred.texts[a])
    raise call.graph_break("FL417", f"{fn.__name__}() of a {type(args[0]).__name__ if args else 'nothing'}")


def _size(call: Call) -> Frame | None:
    """Handles ``shape.__repr__()``."""
    if len(call.args) == 1 and not call.kwargs and type(call.args[0]) is torch.Size:
        return _text(call.of(builtins.repr, call.args))
    return c_calls.call_c(call)


def _waiting(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any) -> str | None:
    """Returns a deferred text for the call; None if the text has to be made now."""
    return waiting(interp, f, fn, args) if fn in (str, repr, format) and args and not kwargs else None


def _lasts(trace: SegmentTrace, obj: Any) -> bool:
    """Returns whether ``obj`` probably exists in the next call, too, so that its id() may be a constant."""
    src = trace.sources.get(obj)
    if src is None or is_value(obj) or is_a(obj, Tensor) or obj in trace.made:
        return False
    if type(obj) is types.FunctionType and _is_named(obj):
        return True
    while src.parent is not None and not is_a(src.value, torch.nn.Module):
        src = src.parent
    return src.op in LASTING or is_a(src.value, torch.nn.Module)


def _is_named(fn: types.FunctionType) -> bool:
    """Returns whether a module has the function under its name, so that it lasts where it is only an argument."""
    module = sys.modules.get(fn.__module__) if type(fn.__module__) is str else None
    return is_a(module, types.ModuleType) and types.ModuleType.__getattribute__(module, "__dict__").get(fn.__qualname__) is fn


def _printed_by_c(trace: SegmentTrace, fn: Any, obj: Any) -> str | None:
    """Returns a text that is a name and an address, and guards it: of a function, or of an object whose class has no method for its text.

    None: of another object, or of one that may be another at each call.
    """
    t = type(obj)
    builtin = t is types.BuiltinFunctionType and is_value(obj)
    if builtin or (is_getter(obj) and not is_users_class(obj.__self__.__objclass__)):
        text = str(fn(obj))
        if not builtin or " at 0x" in text:
            # C's functions and attributes last as long as the process, but the guard keeps their addresses out of saved programs.
            lasting = obj if builtin else obj.__self__
            same = SameText(object.__repr__(lasting))
            trace.guards.check(trace.pin(lasting, lasting.__name__), "predicate", (same, f"prints as {same.text}"), "text")
        return text
    if not _lasts(trace, obj) or (t is not types.FunctionType and not _has_no_text(trace, t, fn)):
        return None
    text = str(fn(obj))
    trace.guards.check(trace.sources[obj], "predicate", (SameText(text), f"prints as {text}"), "text")
    return text


def _has_no_text(trace: SegmentTrace, t: type, fn: Any) -> bool:
    if type(t) is not type or not is_users_class(t) or issubclass(t, Tensor):
        return False
    methods = {"__repr__": object.__repr__, "__str__": object.__str__, "__format__": object.__format__}
    asked = list(methods)[: (repr, str, format).index(fn) + 1]
    return all([type_info(trace, t).look(trace, name)[1] is methods[name] for name in asked])


def _hashes_address(obj: Any) -> bool:
    """Returns whether the hash of ``obj``, if C computes it, depends on the address of an object."""
    if is_a(obj, (tuple, frozenset)):
        return any([_hashes_address(x) for x in obj])
    return is_a(obj, BaseException) or prints_address(obj)


class SameText:
    """A predicate: C prints a function, or an object, as at capture. Runs no user code for another object either."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, v: Any) -> bool:
        return (repr(v) if type(v) is types.FunctionType else object.__repr__(v)) == self.text


class _Given:
    """An object whose special methods return ``value``: C converts or rejects it as the result of a user's method."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __str__(self) -> str:
        return self.value

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return self.value

    def __hash__(self) -> int:
        return self.value


def _checked(interp: Interp, f: Frame, value: Any, then: Delivery | None, fn: Any) -> Frame | None:
    return interp.finish(f, value if type(value) is str and fn is not hash else fn(_Given(settle_all(value))), then)


HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    {
        **dict.fromkeys((builtins.str, builtins.repr, builtins.format, builtins.hash, builtins.id), _text),
        torch.Size.__repr__: _size,
    }
)
