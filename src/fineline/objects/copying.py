"""Handlers of copy.copy() and copy.deepcopy(), for objects whose copying runs no user code."""

from __future__ import annotations

import collections
import copy
import types
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from fineline.bytecode.code import CODES
from fineline.exception_slots import ARGS
from fineline.frames.frame import Frame
from fineline.identity import IdentitySet
from fineline.kinds import is_a, is_users_class
from fineline.objects.type_info import special_method, type_info, watches
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tracing.interp import Call, Handler
from fineline.tracing.plain_values import PINNED, SINGLETONS, VALUES
from fineline.tracing.segment_trace import SegmentTrace

# The methods by which a class may change how it is copied.
HOOKS = (
    "__deepcopy__", "__copy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__",
    "__new__",
)  # fmt: skip


def _notes_reads(trace: SegmentTrace, t: type) -> bool:
    """Returns whether the class has a ``__getattribute__`` that does more than pass the name on, such as map it to another name."""
    fn = type_info(trace, t).getattribute
    if not watches(trace, t):
        return False
    code = fn.__code__
    return (
        not set(code.co_names) <= {"super", "object", "__getattribute__"}
        or code.co_freevars != ("__class__",)
        or any(i.name == "STORE_SUBSCR" for i in CODES[code].instructions)
    )


def closed_world(trace: SegmentTrace, obj: Any, seen: IdentitySet) -> bool:
    """Guards an object and all it contains; False if a part has its own copy methods or is a tensor. ``seen``: the objects checked so far."""
    t = type(obj)
    if t in SINGLETONS or t in VALUES or is_a(obj, PINNED) or t is types.FunctionType:
        trace.deferred.settle(obj)
        return True
    if obj in seen:
        return True
    seen.add(obj)
    if t in SYMBOLIC:
        return True
    if t in (list, dict, tuple, set, frozenset, collections.OrderedDict, collections.deque, collections.defaultdict):
        trace.expand(obj)
        items = [x for pair in obj.items() for x in pair] if is_a(obj, dict) else obj
        return all([closed_world(trace, x, seen) for x in items])
    if is_a(obj, (Tensor, nn.Module)) or not is_users_class(t) or is_a(obj, (list, dict, set, tuple, int, str, float, BaseException)):
        return False
    info = type_info(trace, t)
    if _notes_reads(trace, t) or any(is_a(info.look(trace, n)[1], types.FunctionType) for n in HOOKS):
        return False
    if (
        any(is_a(d, types.MemberDescriptorType) for k in t.__mro__ if is_users_class(k) for d in k.__dict__.values())
        or not t.__dictoffset__
    ):
        return False
    d = object.__getattribute__(obj, "__dict__")
    trace.dict_source(obj, d)
    return closed_world(trace, d, seen)


def mark_made(trace: SegmentTrace, obj: Any, seen: IdentitySet | None = None) -> None:
    """Notes that a copy, and each new object in it, was created in the segment."""
    t = type(obj)
    if t in SINGLETONS or t in VALUES or obj in trace.sources or is_a(obj, PINNED) or t is types.FunctionType:
        return
    # A set apart from ``trace.made``, which may contain the address of an object that is gone.
    seen = IdentitySet() if seen is None else seen
    if obj in seen:
        return
    seen.add(obj)
    trace.made.add(obj)
    parts: list[Any] = []
    if is_a(obj, dict):
        parts = [x for pair in dict.items(obj) for x in pair]
    elif is_a(obj, (list, tuple, set, frozenset, collections.deque)):
        parts = list(obj)
    elif is_a(obj, BaseException):
        parts = [ARGS.__get__(obj)]
    if t.__dictoffset__:
        parts.append(object.__getattribute__(obj, "__dict__"))
    for part in parts:
        mark_made(trace, part, seen)


def _copying(name: str) -> Handler:
    def handler(call: Call) -> Frame | None:
        trace = call.trace
        obj = call.args[0]
        method = special_method(trace, type(obj), name)
        if is_a(method, types.FunctionType) and not is_a(obj, (Tensor, nn.Module)):
            return call.instead(method, [obj] if name == "__copy__" else [obj, {}])
        if not trace.active:
            return call.run_natively()
        seen = IdentitySet()
        if len(call.args) > 1 or call.kwargs or not closed_world(trace, obj, seen):
            raise call.graph_break("FL410", f"copy.{call.fn.__name__} of a {type(obj).__name__}")
        numbers = {id(x): x for x in seen if type(x) in SYMBOLIC}
        # A number is its own copy, and so is a symbol.
        if id(obj) in numbers:
            return call.finish(obj)
        result = copy.deepcopy(obj, numbers) if call.fn is copy.deepcopy else call.fn(obj)
        mark_made(trace, result)
        return call.finish(result)

    return handler


HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    {copy.copy: _copying("__copy__"), copy.deepcopy: _copying("__deepcopy__")},
)
