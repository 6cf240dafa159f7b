"""Classes as the interpreter makes them and asks about them: class statements, isinstance(), super()."""

from __future__ import annotations

import abc
import builtins
import collections
import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from fineline.cpython import protocols
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import GraphBreak
from fineline.kinds import is_a
from fineline.objects import c_calls
from fineline.objects.attribute_reads import raw_lookup, special_method, type_info, watches
from fineline.objects.c_argument_errors import refused
from fineline.objects.callable_table import UNKNOWN, spec_of
from fineline.objects.instances import make_instance
from fineline.objects.introspection import load_cell
from fineline.objects.iterator_stand_ins import KINDS
from fineline.symbolic.arithmetic import SYMBOLIC, settle_all
from fineline.tracing.identity_guards import CLASS_MRO, guard_mro, guard_subclass, is_instance
from fineline.tracing.interp import Interp
from fineline.tracing.segment_trace import HEAP_TYPE, SegmentTrace, is_value

OBJECT_CLASS = object.__dict__["__class__"]
OBJECT_HOOK = object.__dict__["__subclasshook__"]
# What metaclasses answer with from the classes alone, without the user's code.
STATIC_CHECKS = frozenset(
    raw_lookup(meta, check)
    for meta in (abc.ABCMeta, type(nn.Parameter), enum.EnumMeta, type(typing.Protocol), type(torch.autograd.Function), type(nn.Buffer))
    for check in ("__instancecheck__", "__subclasscheck__")
)


def _object_new(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    obj = fn(*args, **(kwargs or {}))
    interp.trace.made.add(id(obj))
    return interp.finish(f, obj, then, data)


def _object_init(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    return interp.finish(f, fn(*args, **(kwargs or {})), then, data)


def _isinstance(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    obj, classes = args
    trace = interp.trace
    # Of what stands for another object, the type of that.
    kind = KINDS.get(type(obj), type(obj))
    stands = kind is not type(obj)
    if trace.active:
        by_class = not stands and kind is not classes and answers_class(trace, kind)
        stack = [classes]
        while stack:
            c = stack.pop()
            if is_a(c, tuple):
                stack.extend(c)
            elif is_a(c, type) and not (type(c) is type and issubclass(kind, c)):
                check = raw_lookup(type(c), "__instancecheck__")
                _guard_check(trace, c, "__instancecheck__", check)
                if is_a(check, types.FunctionType) and check in STATIC_CHECKS and (not by_class or type(c) is abc.ABCMeta):
                    if not by_class and not stands:
                        _guard_abstract(trace, obj, c)
                elif is_a(check, types.FunctionType):
                    if c is classes:
                        return interp.call(f, check, [c, obj], None, _to_bool, (then, data))
                    raise GraphBreak(isinstance, (obj, classes), None, "FL412", "isinstance() with a metaclass's own __instancecheck__").to(
                        then, data
                    )
        src = trace.sources.get(id(obj))
        if src is not None and not src.checked and not stands:
            trace.check_type(src, kind)
        if kind is not classes and not stands:
            guard_mro(trace, kind)
        if by_class:
            return interp.call(f, protocols.is_instance, [obj, classes], None, then, data)
    return interp.finish(f, issubclass(kind, classes) if stands else isinstance(obj, classes), then, data)


def answers_class(trace: SegmentTrace, t: type) -> bool:
    """Returns whether reading ``__class__`` of an instance runs the user's code."""
    return watches(trace, t) or (bool(t.__flags__ & HEAP_TYPE) and type_info(trace, t).look(trace, "__class__")[1] is not OBJECT_CLASS)


def _is_a(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """Handles ``is_a`` in interpreted polyfills: answers as C does, from the object's type, and guards the MRO."""
    obj, kinds = args
    if interp.trace.active and type(obj) is not kinds:
        guard_mro(interp.trace, type(obj))
    found = issubclass(interp.type_of(obj), kinds) if type(obj) in SYMBOLIC else is_a(obj, kinds)
    return interp.finish(f, found, then, data)


def _guard_check(trace: SegmentTrace, cls: Any, name: str, check: Any) -> None:
    """Guards a metaclass's method for a check, if a user metaclass decides about it, or may do so later."""
    if type(cls).__flags__ & HEAP_TYPE and not (is_a(check, types.FunctionType) and check in STATIC_CHECKS):
        type_info(trace, type(cls)).look(trace, name)


def _guard_abstract(trace: SegmentTrace, obj: Any, cls: Any) -> None:
    """Guards the answer of a class whose metaclass checks instances in its own way, but without user code."""
    src = trace.sources.get(id(obj))
    if getattr(cls, "_is_protocol", False):
        if src is not None:
            trace.guards.check(src, "predicate", (partial(is_instance, cls, isinstance(obj, cls)), f"isinstance of {cls.__qualname__}"), id(cls))
    elif is_a(cls, abc.ABCMeta) and (not is_a(obj, (int, float, str)) or trace.classes.is_given(cls)):
        _guard_subclass(trace, type(obj), cls, isinstance(obj, cls))


def _guard_subclass(trace: SegmentTrace, cls: type, base: Any, answer: bool) -> None:
    """Guards what an abstract class answers about ``cls``; that it is a base says enough, unless it has a say of its own."""
    inherits = answer and any([k is base for k in CLASS_MRO.__get__(cls)])
    if not inherits or special_method(trace, base, "__subclasshook__") is not OBJECT_HOOK:
        guard_subclass(trace, cls, base, answer)


def _to_bool(interp: Interp, f: Frame, value: Any, state: tuple) -> Frame | None:
    return interp.finish(f, bool(value), *state)


def _issubclass(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    cls, classes = args
    for c in classes if is_a(classes, tuple) else (classes,):
        check = raw_lookup(type(c), "__subclasscheck__")
        if interp.trace.active:
            _guard_check(interp.trace, c, "__subclasscheck__", check)
        if is_a(check, types.FunctionType) and check not in STATIC_CHECKS:
            raise GraphBreak(issubclass, (cls, classes), None, "FL412", "issubclass() with a metaclass's own __subclasscheck__").to(then, data)
        if interp.trace.active and is_a(cls, type) and cls is not c:
            guard_mro(interp.trace, cls)
            if is_a(c, abc.ABCMeta):
                _guard_subclass(interp.trace, cls, c, issubclass(cls, c))
    return interp.finish(f, issubclass(cls, classes), then, data)


def _callable(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if interp.trace.active and args and type(args[0]).__flags__ & HEAP_TYPE:
        type_info(interp.trace, type(args[0])).look(interp.trace, "__call__")
    return interp.finish(f, callable(*args), then, data)


def _type(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if len(args) == 1 and not kwargs:
        t = interp.type_of(args[0])
        return interp.finish(f, t, then, data)
    if len(args) != 3:
        return refused(interp, f, fn, args, kwargs, then, data)
    if type(args[2]) is dict:
        # CPython takes the module's name from the calling frame, which here would be one of fineline's.
        interp.trace.expand(args[2])
        args = [*args[:2], interp.trace.fresh({"__module__": f.globals.get("__name__"), **args[2]})]
    raise natively(interp, type, args, kwargs, "making a class").to(then, data)


def _super(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if not args:
        info = f.info
        if not info.code.co_argcount:
            raise RuntimeError("super(): no arguments")
        if "__class__" not in info.code.co_freevars:
            raise RuntimeError("super(): __class__ cell not found")
        at = info.slots.index("__class__")
        cell = f.local[at]
        cls = load_cell(interp, cell)
        self = f.local[0]
        if type(self) is types.CellType:
            self = self.cell_contents
        args = [cls, self]
    obj = super(*args)
    interp.trace.made.add(id(obj))
    return interp.finish(f, obj, then, data)


def _build_class(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """Runs a class statement eagerly, with the body of the class."""
    if not interp.trace.active:
        return interp.finish(f, interp.trace.classes.add(interp.native(fn, tuple(args), kwargs)), then, data)
    raise natively(interp, fn, args, kwargs, f"the class {args[1]} is made").to(then, data)


def natively(interp: Interp, make: Any, args: list, kwargs: Any, reason: str) -> GraphBreak:
    """Returns the graph break at which a class is made."""
    classes = interp.trace.classes
    if interp.trace.active:
        interp.trace.pin(classes, "made_natively")
    return GraphBreak(classes, (make, *args), kwargs, "FL423", reason)


def _class_factory(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """Breaks the graph at library functions that write a class's source and compile it."""
    if not interp.trace.active:
        return interp.finish(f, interp.trace.classes(fn, *args, **(kwargs or {})), then, data)
    if fn is collections.namedtuple:
        # It would ask the calling frame.
        kwargs = {"module": f.globals.get("__name__"), **(kwargs or {})}
    raise natively(interp, fn, args, kwargs, f"{fn.__name__}() makes a class").to(then, data)


def _wrapper(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """Handles property(), classmethod(), staticmethod() and object(), which only hold their arguments."""
    return interp.finish(f, interp.trace.fresh(interp.native(fn, tuple(args), kwargs)), then, data)


def _type_call(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """Handles ``type.__call__``, which the ``__call__`` of a metaclass calls to make the instance."""
    cls = args[0] if args else None
    plain = is_a(cls, type) and cls.__flags__ & HEAP_TYPE and not issubclass(cls, (type, torch.Tensor)) and cls.__module__ != "torch"
    if interp.trace.active and plain and spec_of(cls) is UNKNOWN:
        return make_instance(interp, f, cls, args[1:], kwargs, then, data)
    return c_calls.call(interp, f, fn, fn, args, kwargs, then, data)


def _enum_call(interp: Interp, f: Frame, cls: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    target, real = (cls, args) if is_a(cls, enum.EnumMeta) else (args[0], args[1:])
    if len(real) != 1 or kwargs:
        # It would ask the calling frame for the module.
        kwargs = {"module": f.globals.get("__name__"), **(kwargs or {})}
        raise natively(interp, target, real, kwargs, "making an enum").to(then, data)
    if target in interp.trace.classes:
        return interp.push_function(f, enum.EnumMeta.__call__, [target, *real], None, then, data)
    if interp.fakes is not None:
        # Which member it is decides what the code does next.
        real = [settle_all(real[0])]
    if is_value(real[0]):
        interp.trace.settle(real[0])
        return interp.finish(f, target(*real), then, data)
    raise GraphBreak(target, tuple(real), None, "FL423", "looking up a member of an enum").to(then, data)


HANDLERS: Mapping[Any, Callable] = MappingProxyType(
    {
        object.__new__: _object_new,
        object.__init__: _object_init,
        builtins.isinstance: _isinstance,
        builtins.issubclass: _issubclass,
        is_a: _is_a,
        builtins.callable: _callable,
        builtins.type: _type,
        builtins.super: _super,
        builtins.__build_class__: _build_class,
        type.__call__: _type_call,
        **dict.fromkeys((object, property, classmethod, staticmethod, property.setter, property.getter, property.deleter), _wrapper),
        enum.EnumMeta.__call__: _enum_call,
        **dict.fromkeys((collections.namedtuple, dataclasses._process_class, types.new_class), _class_factory),  # type: ignore[attr-defined]
    }
)
