"""Handlers of calls that read or check classes: isinstance(), issubclass(), super(), type()."""

from __future__ import annotations

import abc
import builtins
import enum
import types
import typing
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from fineline.builtins.class_making import MAKERS, make_by_type
from fineline.cpython import protocols
from fineline.frames.frame import NULL, Frame
from fineline.frames.graph_breaks import Delivery, GraphBreak
from fineline.identity import IdentityMap
from fineline.kinds import is_a, is_users_class
from fineline.numpy_support import np
from fineline.objects import c_calls
from fineline.objects.c_argument_errors import refused
from fineline.objects.callable_table import UNKNOWN, spec_of
from fineline.objects.instances import make_instance
from fineline.objects.introspection import find_cell
from fineline.objects.type_info import raw_lookup, special_method, type_info, watches
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tables import attributes
from fineline.tracing.identity_guards import SameSubclasses, guard_mro, guard_subclass, is_instance
from fineline.tracing.interp import Call, Handler, Interp
from fineline.tracing.mutation_log import EMPTY
from fineline.tracing.recreated_classes import CLASS_MRO
from fineline.tracing.segment_trace import SegmentTrace

OBJECT_CLASS = object.__dict__["__class__"]
OBJECT_HOOK = object.__dict__["__subclasshook__"]
# Methods of metaclasses that answer isinstance() and issubclass() from the classes alone, without user code; of tensors also by `_MARKS`.
STATIC_CHECKS = frozenset(
    raw_lookup(meta, check)
    for meta in (
        *(abc.ABCMeta, type(nn.Parameter), enum.EnumMeta, type(typing.Protocol), type(torch.autograd.Function), type(nn.Buffer)),
        *attributes("torch._opaque_base", "OpaqueBaseMeta"),
        *attributes("torch._custom_class_base", "CustomClassBaseMeta"),
    )
    for check in ("__instancecheck__", "__subclasscheck__")
)


def _object_new(call: Call) -> Frame | None:
    obj = call.fn(*call.args, **(call.kwargs or {}))
    call.trace.made.add(obj)
    return call.finish(obj)


_MARKS = IdentityMap(((nn.Parameter, "_is_param"), (nn.Buffer, "_is_buffer")))


def _isinstance(call: Call) -> Frame | None:
    obj, classes = call.args
    trace = call.trace
    # For a stand-in, the type of the object that it replaces.
    kind = call.interp.type_of(obj)
    stands = kind is not type(obj)
    if trace.active:
        by_class = not stands and kind is not classes and answers_class(trace, kind)
        stack = [classes]
        while stack:
            c = stack.pop()
            if is_a(c, (tuple, types.UnionType)):
                stack.extend(_members(c))
            elif is_a(c, type) and not (type(c) is type and issubclass(kind, c)):
                check = raw_lookup(type(c), "__instancecheck__")
                _guard_check(trace, c, "__instancecheck__", check)
                if c in _MARKS and is_a(obj, torch.Tensor):
                    _guard_mark(trace, obj, _MARKS[c])
                if is_a(check, types.FunctionType) and check in STATIC_CHECKS and (not by_class or type(c) is abc.ABCMeta):
                    if not by_class and not stands:
                        if getattr(c, "_is_protocol", False) and (trace.classes.local.is_given(c) or trace.mutations.class_attributes):
                            reason = "isinstance() with a protocol that eager code makes, or with one after a write to a class"
                            raise GraphBreak(isinstance, (obj, classes), None, "FL412", reason)
                        _guard_abstract(trace, obj, c)
                elif is_a(check, types.FunctionType):
                    if c is classes:
                        return call.instead(check, [c, obj], None, _to_bool)
                    raise GraphBreak(isinstance, (obj, classes), None, "FL412", "isinstance() with a metaclass's own __instancecheck__")
            elif _stands_for_class(c):
                raise GraphBreak(isinstance, (obj, classes), None, "FL412", f"isinstance() with a {type(c).__name__} in place of a class")
        src = trace.sources.get(obj)
        if src is not None and not src.checked and not stands:
            trace.check_type(src, kind)
        if kind is not classes and not stands:
            guard_mro(trace, kind)
        if by_class:
            return call.instead(protocols.is_instance, [obj, classes])
    return call.finish(issubclass(kind, classes) or _is_marked(obj, classes) if stands else isinstance(obj, classes))


def _guard_mark(trace: SegmentTrace, t: torch.Tensor, name: str) -> None:
    """Guards the attribute by which a tensor of another class is a parameter or a buffer."""
    d = object.__getattribute__(t, "__dict__")
    src = trace.dict_source(t, d)
    if name in d:
        trace.read_key(d, src, name, d[name])
    else:
        trace.read_absent(d, src, name)


def _is_marked(obj: Any, classes: Any) -> bool:
    """Returns whether ``obj``, a stand-in, has the attribute by which tensors of other classes are parameters or buffers."""
    if not is_a(obj, torch.Tensor):
        return False
    if is_a(classes, (tuple, types.UnionType)):
        return any([_is_marked(obj, c) for c in _members(classes)])
    return classes in _MARKS and bool(obj.__dict__.get(_MARKS[classes]))


def _members(classes: tuple | types.UnionType) -> tuple:
    """Returns the classes of a tuple, or of a union."""
    return classes if is_a(classes, tuple) else classes.__args__


def answers_class(trace: SegmentTrace, t: type) -> bool:
    """Returns whether a read of ``__class__`` of an instance runs user code."""
    return watches(trace, t) or (is_users_class(t) and type_info(trace, t).look(trace, "__class__")[1] is not OBJECT_CLASS)


def _is_a(call: Call) -> Frame | None:
    """Handles ``is_a`` in interpreted polyfills: answers as C does, from the object's type, and guards the MRO."""
    obj, kinds = call.args
    if call.trace.active and type(obj) is not kinds:
        guard_mro(call.trace, type(obj))
    found = issubclass(call.interp.type_of(obj), kinds) if type(obj) in SYMBOLIC or type(obj) is np.ndarray else is_a(obj, kinds)
    return call.finish(found)


def _stands_for_class(c: Any) -> bool:
    """Returns whether C reads the attributes of ``c``, no class, as those of one, or asks its type: both may run Python code."""
    return not is_a(c, type) and is_users_class(type(c)) and type(c).__module__ != "typing"


def _guard_check(trace: SegmentTrace, cls: Any, name: str, check: Any) -> None:
    """Guards the method ``check`` that a metaclass in Python has under ``name``, unless it is one of `STATIC_CHECKS`."""
    if is_users_class(type(cls)) and not (is_a(check, types.FunctionType) and check in STATIC_CHECKS):
        type_info(trace, type(cls)).look(trace, name)


def _guard_abstract(trace: SegmentTrace, obj: Any, cls: Any) -> None:
    """Guards the answer of a class whose metaclass checks instances in its own way, but without user code."""
    src = trace.sources.get(obj)
    if getattr(cls, "_is_protocol", False):
        if src is not None:
            trace.guards.check(src, "predicate", (partial(is_instance, cls, isinstance(obj, cls)), f"isinstance of {cls.__qualname__}"), id(cls))
    elif is_a(cls, abc.ABCMeta) and (not is_a(obj, (int, float, str)) or trace.classes.local.is_given(cls)):
        _guard_subclass(trace, type(obj), cls, isinstance(obj, cls))


def _guard_subclass(trace: SegmentTrace, cls: type, base: Any, answer: bool) -> None:
    """Guards the answer of an abstract class about ``cls``, unless the MRO and the default ``__subclasshook__`` already imply it."""
    inherits = answer and any([k is base for k in CLASS_MRO.__get__(cls)])
    if not inherits or special_method(trace, base, "__subclasshook__") is not OBJECT_HOOK:
        guard_subclass(trace, cls, base, answer)


def _to_bool(interp: Interp, f: Frame, value: Any, then: Delivery | None) -> Frame | None:
    return interp.finish(f, bool(value), then)


def _issubclass(call: Call) -> Frame | None:
    cls, classes = call.args
    for c in classes if is_a(classes, tuple) else (classes,):
        check = raw_lookup(type(c), "__subclasscheck__")
        if call.trace.active:
            if _stands_for_class(c) or _stands_for_class(cls):
                raise GraphBreak(issubclass, (cls, classes), None, "FL412", "issubclass() with an object in place of a class")
            _guard_check(call.trace, c, "__subclasscheck__", check)
        if is_a(check, types.FunctionType) and check not in STATIC_CHECKS:
            raise GraphBreak(issubclass, (cls, classes), None, "FL412", "issubclass() with a metaclass's own __subclasscheck__")
        if call.trace.active and is_a(cls, type) and cls is not c:
            guard_mro(call.trace, cls)
            if is_a(c, abc.ABCMeta):
                _guard_subclass(call.trace, cls, c, issubclass(cls, c))
    return call.finish(issubclass(cls, classes))


def _callable(call: Call) -> Frame | None:
    if call.trace.active and call.args and is_users_class(type(call.args[0])):
        type_info(call.trace, type(call.args[0])).look(call.trace, "__call__")
    return call.finish(callable(*call.args))


def _type(call: Call) -> Frame | None:
    if len(call.args) == 1 and not call.kwargs:
        return call.finish(call.interp.type_of(call.args[0]))
    return make_by_type(call) if len(call.args) == 3 else refused(call)


def _super(call: Call) -> Frame | None:
    if not call.args:
        call.args = _arguments_of_super(call)
    obj = super(*call.args)
    call.trace.made.add(obj)
    return call.finish(obj)


def _arguments_of_super(call: Call) -> list[Any]:
    """Returns the class and the first argument of the function that calls ``super()``, which is how CPython finds them."""
    info, local = call.frame.info, call.frame.local
    if not info.code.co_argcount:
        raise RuntimeError("super(): no arguments")
    self = local[0]
    if info.slots[0] in info.code.co_cellvars and is_a(self, types.CellType):
        self = find_cell(call.interp, self)
    if self is NULL or self is EMPTY:
        raise RuntimeError("super(): arg[0] deleted")
    if "__class__" not in info.code.co_freevars:
        raise RuntimeError("super(): __class__ cell not found")
    cls = find_cell(call.interp, local[info.slots.index("__class__")])
    if cls is EMPTY:
        raise RuntimeError("super(): empty __class__ cell")
    if not is_a(cls, type):
        raise RuntimeError(f"super(): __class__ is not a type ({type(cls).__name__})")
    return [cls, self]


def _wrapper(call: Call) -> Frame | None:
    """Handles property(), classmethod(), staticmethod() and object(), which only store their arguments."""
    return call.finish(call.trace.fresh(call.native()))


def _type_call(call: Call) -> Frame | None:
    """Handles ``type.__call__``, which the ``__call__`` of a metaclass calls to make the instance."""
    cls = call.args[0] if call.args else None
    plain = is_a(cls, type) and is_users_class(cls) and not issubclass(cls, (type, torch.Tensor)) and cls.__module__ != "torch"
    if call.trace.active and plain and spec_of(cls) is UNKNOWN:
        return make_instance(call.of(cls, call.args[1:]))
    return c_calls.call_c(call)


def _subclasses(call: Call) -> Frame | None:
    """Handles ``type.__subclasses__``, by which libraries find their implementations (einops): guards that the classes are the same."""
    trace, cls = call.trace, call.args[0]
    if not trace.active or not is_a(cls, type):
        return call.run_natively()
    found: list[type] = type.__subclasses__(cls)
    if any([k in trace.classes.local for k in (cls, *found)]):
        raise call.graph_break("FL410", f"the subclasses of {cls.__name__}, of which each call may make others")
    src = trace.sources.get(cls) or trace.pin(cls, cls.__name__)
    trace.guards.check(src, "predicate", (SameSubclasses(found), "has the same subclasses"), "subclasses")
    trace.made.add(found)
    return call.finish(found)


HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    {
        object.__new__: _object_new,
        object.__init__: Call.run_in_c,
        builtins.isinstance: _isinstance,
        builtins.issubclass: _issubclass,
        is_a: _is_a,
        builtins.callable: _callable,
        builtins.type: _type,
        builtins.super: _super,
        type.__call__: _type_call,
        type.__subclasses__: _subclasses,
        **dict.fromkeys((object, property, classmethod, staticmethod, property.setter, property.getter, property.deleter), _wrapper),
        **MAKERS,
    }
)
